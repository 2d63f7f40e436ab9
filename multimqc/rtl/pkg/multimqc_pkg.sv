// Widths and numbers that all modules of the NIC level share.
//
// Kept to what Verilator 5.006 and Yosys 0.23 both read: constants and functions, named with `multimqc_pkg::`; ports are flat
// vectors. Byte 0 of a stream is tdata[7:0], and is the first on the wire.
package multimqc_pkg;

    // --- Streams ---------------------------------------------------------------

    // The core and the store: 64 bytes a clock.
    localparam int DATA_W = 512;
    localparam int KEEP_W = DATA_W / 8;

    localparam int TOPIC_W  = 8;   // index of a topic on this NIC (not its id on the wire)
    localparam int PORT_W   = 4;   // index of a network port
    localparam int LENGTH_W = 16;  // bytes of a message, a reply or a batch
    localparam int OFFSET_W = 64;  // offset in a log; below 2^63
    localparam int TAG_W    = 8;

    // Pushes, front end to store. tuser, the same on each beat: {topic, port, length}; length is at least 1.
    localparam int PUSH_USER_W = TOPIC_W + PORT_W + LENGTH_W;
    localparam int PUSH_LENGTH = 0;
    localparam int PUSH_PORT   = LENGTH_W;
    localparam int PUSH_TOPIC  = LENGTH_W + PORT_W;

    // Read requests, front end to store: {tag, topic, offset, max_length}; max_length is at least 1.
    localparam int READ_REQUEST_W = TAG_W + TOPIC_W + OFFSET_W + LENGTH_W;
    localparam int READ_MAX       = 0;
    localparam int READ_OFFSET    = LENGTH_W;
    localparam int READ_TOPIC     = LENGTH_W + OFFSET_W;
    localparam int READ_TAG       = LENGTH_W + OFFSET_W + TOPIC_W;

    // Read responses, store to front end, in the order of the requests. tuser, the same on each beat:
    // {summed, sum, tag, status, offset, length}. `summed`: `sum` is that of the bytes (see sum_of), byte 0 the low one of its word, and
    // the beats come without a gap.
    localparam int STATUS_W        = 2;
    localparam int SUM_W           = 16;
    localparam int READ_RESPONSE_W = 1 + SUM_W + TAG_W + STATUS_W + OFFSET_W + LENGTH_W;
    localparam int RESPONSE_LENGTH = 0;
    localparam int RESPONSE_OFFSET = LENGTH_W;
    localparam int RESPONSE_STATUS = LENGTH_W + OFFSET_W;
    localparam int RESPONSE_TAG    = LENGTH_W + OFFSET_W + STATUS_W;
    localparam int RESPONSE_SUM    = RESPONSE_TAG + TAG_W;
    localparam int RESPONSE_SUMMED = RESPONSE_SUM + SUM_W;

    // The bytes from the request's offset on: min(max_length, head - offset) of them, all from one level.
    localparam logic [STATUS_W-1:0] STATUS_HIT = 2'd0;
    // Not written yet: `offset` is the head of the log. No bytes.
    localparam logic [STATUS_W-1:0] STATUS_END = 2'd1;
    // Written, but no level of the store has all of them: for the host. No bytes; `offset` is the request's.
    localparam logic [STATUS_W-1:0] STATUS_OVERWRITTEN = 2'd2;

    // Batches, store to host: {topic, offset, length}. Without bytes (length 0): the log goes on at `offset`, after a hole.
    localparam int BATCH_USER_W = TOPIC_W + OFFSET_W + LENGTH_W;
    localparam int BATCH_LENGTH = 0;
    localparam int BATCH_OFFSET = LENGTH_W;
    localparam int BATCH_TOPIC  = LENGTH_W + OFFSET_W;
    // The most bytes in a batch: an Ethernet frame of 1,514 bytes with IPv4 and the header form around it.
    localparam int BATCH_MAX_BYTES = 1440;

    // The overlap of two levels (equation 1 of the paper): no request for one frame spans two levels.
    localparam int OVERLAP_BYTES = 1500;

    // --- The wire (docs/MULTIMQC_PROTOCOL.md) ------------------------------------

    localparam int HEADER_BYTES = 32;
    localparam int PULL_BYTES   = 16;
    // The longest message that is stored, and so the most bytes of a reply.
    localparam int MAX_MESSAGE_BYTES = 2047;
    localparam int MAX_REPLY_BYTES   = 1472;

    localparam logic [7:0] KIND_PUSH  = 8'd1;
    localparam logic [7:0] KIND_PULL  = 8'd2;
    localparam logic [7:0] KIND_REPLY = 8'd3;
    localparam logic [7:0] KIND_BATCH = 8'd4;

    // --- What is counted, per topic and port --------------------------------------

    localparam int COUNT_W = 4;
    localparam logic [COUNT_W-1:0] COUNT_STORED      = 4'd0;
    localparam logic [COUNT_W-1:0] COUNT_HITS        = 4'd1;
    localparam logic [COUNT_W-1:0] COUNT_MISSES      = 4'd2;   // not written yet: answered with the end of the log
    localparam logic [COUNT_W-1:0] COUNT_OVERWRITTEN = 4'd3;
    localparam logic [COUNT_W-1:0] COUNT_DROPPED     = 4'd4;   // by the input function
    localparam logic [COUNT_W-1:0] COUNT_OVERSIZE    = 4'd5;
    localparam logic [COUNT_W-1:0] COUNT_CORRUPT     = 4'd6;
    localparam logic [COUNT_W-1:0] COUNT_FRAGMENTS   = 4'd7;
    localparam logic [COUNT_W-1:0] COUNT_MALFORMED   = 4'd8;
    localparam logic [COUNT_W-1:0] COUNT_REFUSED     = 4'd9;
    localparam logic [COUNT_W-1:0] COUNT_PASSED      = 4'd10;  // other frames, for the host (topic 0)
    localparam logic [COUNT_W-1:0] COUNT_BUSY        = 4'd11;  // pulls for the host, since as many as can wait were waiting

    // --- Frames inside of the front end ---------------------------------------------

    // The longest frame that is taken from a port or from the host, without its checksum; a longer one is dropped.
    localparam int MAX_FRAME_BYTES = 2048;

    localparam int CLASS_W = 2;
    localparam logic [CLASS_W-1:0] CLASS_PASS = 2'd0;  // for the host, as it came
    localparam logic [CLASS_W-1:0] CLASS_PUSH = 2'd1;
    localparam logic [CLASS_W-1:0] CLASS_PULL = 2'd2;

    // The classifier's findings about a frame, which travel beside the frame:
    // {port, cookie and sequence, offset, n, length, headed, v6, topic, count, class}.
    localparam int FRAME_LENGTH_W = 12;
    localparam int FRAME_CLASS  = 0;
    localparam int FRAME_COUNT  = FRAME_CLASS + CLASS_W;      // what a frame for the host counts as
    localparam int FRAME_TOPIC  = FRAME_COUNT + COUNT_W;
    localparam int FRAME_V6     = FRAME_TOPIC + TOPIC_W;      // IPv6, not IPv4
    localparam int FRAME_HEADED = FRAME_V6 + 1;               // in the header form, not the plain one
    localparam int FRAME_LENGTH = FRAME_HEADED + 1;           // bytes of the frame
    localparam int FRAME_N      = FRAME_LENGTH + FRAME_LENGTH_W;  // of a push: its message's bytes; of a pull: the most of the reply
    localparam int FRAME_OFFSET = FRAME_N + LENGTH_W;         // of a pull
    localparam int FRAME_NAMES  = FRAME_OFFSET + OFFSET_W;    // of a pull in the header form: cookie and sequence
    localparam int FRAME_PORT   = FRAME_NAMES + 64;
    localparam int FRAME_USER_W = FRAME_PORT + PORT_W;

    // The values of which the framer makes headers; fields as they are in a frame, byte 0 lowest.
    localparam int HEADER_V6        = 0;
    localparam int HEADER_HEADED    = 1;                       // in the header form
    localparam int HEADER_DEST      = 2;                       // the port that the frame goes to
    localparam int HEADER_N         = HEADER_DEST + PORT_W;    // bytes of the payload, without the header form
    localparam int HEADER_MACS      = HEADER_N + 16;           // to, from
    localparam int HEADER_ADDRESSES = HEADER_MACS + 96;        // from, to: 16 bytes each; IPv4 in the lowest 4 of each
    localparam int HEADER_PORTS     = HEADER_ADDRESSES + 256;  // from, to
    localparam int HEADER_KIND      = HEADER_PORTS + 32;       // of the header form, from here on
    localparam int HEADER_TOPIC     = HEADER_KIND + 8;
    localparam int HEADER_STATUS    = HEADER_TOPIC + 16;
    localparam int HEADER_NAMES     = HEADER_STATUS + 16;      // cookie, sequence
    localparam int HEADER_OFFSET    = HEADER_NAMES + 64;
    localparam int HEADER_EPOCH     = HEADER_OFFSET + 64;
    localparam int HEADER_SUM       = HEADER_EPOCH + 32;       // of the payload, if HEADER_SUMMED; its beats then come without a gap
    localparam int HEADER_SUMMED    = HEADER_SUM + SUM_W;
    localparam int HEADER_W         = HEADER_SUMMED + 1;

    // tkeep of a last beat with `bytes` bytes, 0 to 64.
    function automatic logic [KEEP_W-1:0] keep_of(input logic [6:0] bytes);
        keep_of = ~({KEEP_W{1'b1}} << bytes);
    endfunction

    // --- Sums of the Internet's checksum (RFC 1071), over words whose first byte is the low one --------------------

    // The bytes of `keep`, the others 0.
    function automatic logic [DATA_W-1:0] masked(input logic [DATA_W-1:0] data, input logic [KEEP_W-1:0] keep);
        for (int i = 0; i < KEEP_W; i++) masked[i*8 +: 8] = keep[i] ? data[i*8 +: 8] : 8'd0;
    endfunction

    function automatic logic [20:0] sum_of(input logic [DATA_W-1:0] data);
        sum_of = 21'd0;
        for (int i = 0; i < DATA_W / 16; i++) sum_of = sum_of + {5'd0, data[i*16 +: 16]};
    endfunction

    // In 16 bits: 0 is a sum of nothing but zeros, or 0xffff.
    function automatic logic [15:0] folded(input logic [27:0] sum);
        logic [16:0] once;
        once   = 17'(sum[15:0]) + 17'(sum[27:16]);
        folded = once[15:0] + 16'(once[16]);
    endfunction

endpackage
