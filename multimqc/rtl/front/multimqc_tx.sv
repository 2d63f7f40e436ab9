// Sends frames of 512-bit beats to one network port, 64 or 512 bits a clock.
//
// Replies are not to wait for a port that is slow: a reply for which there is no place is dropped (`event_dropped`). Frames of the
// host wait. Both come without gaps (from a queue of whole frames), so once a frame has begun, the MAC gets a beat whenever it
// asks for one.
module multimqc_tx #(
    parameter int PORT_BITS = 64,  // of a beat of the port: 64 or 512
    parameter int BEATS     = 64
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [511:0] s_reply_tdata,
    input  logic [63:0]  s_reply_tkeep,
    input  logic         s_reply_tlast,
    input  logic         s_reply_tvalid,
    output logic         s_reply_tready,
    input  logic [511:0] s_host_tdata,
    input  logic [63:0]  s_host_tkeep,
    input  logic         s_host_tlast,
    input  logic         s_host_tvalid,
    output logic         s_host_tready,
    output logic [PORT_BITS-1:0]   m_tdata,
    output logic [PORT_BITS/8-1:0] m_tkeep,
    output logic         m_tlast,
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic         event_dropped,
    output logic         event_sent
);
    localparam int A = $clog2(BEATS);
    localparam int MAX_BEATS = multimqc_pkg::MAX_FRAME_BYTES / 64;
    localparam int BYTES     = PORT_BITS / 8;
    localparam int PARTS     = 512 / PORT_BITS;  // of a beat of the queue
    localparam int PART_W    = PARTS > 1 ? $clog2(PARTS) : 1;

    if (PORT_BITS != 64 && PORT_BITS != 512) begin : gen_bad_bits
        $error("PORT_BITS must be 64 or 512");
    end
    if ((1 << A) != BEATS || BEATS < 2 * MAX_BEATS) begin : gen_bad_beats
        $error("BEATS must be a power of two of at least 2 * MAX_FRAME_BYTES / 64");
    end

    // --- In: one frame after the other, replies and frames of the host in turn ---------------------
    logic [A:0] used;
    logic       midway, host, dropping, host_last;
    wire        room = used <= (A + 1)'(BEATS - MAX_BEATS);
    wire        pick_host = s_host_tvalid && room && (!s_reply_tvalid || !host_last);
    wire        from_host = midway ? host : pick_host;
    wire        drop_now  = midway ? dropping : !pick_host && !room;
    wire        s_valid   = from_host ? s_host_tvalid : s_reply_tvalid;
    wire        s_last    = from_host ? s_host_tlast : s_reply_tlast;

    assign s_host_tready  = from_host;
    assign s_reply_tready = !from_host;
    assign event_dropped  = s_valid && s_last && drop_now;

    logic       q_valid, q_ready, q_pop, q_last;
    logic [511:0] q_data;
    logic [63:0]  q_keep;
    logic         queue_ready;

    assign q_ready = s_valid && !drop_now;

    always_ff @(posedge clk) begin
        if (s_valid) begin
            midway   <= !s_last;
            host     <= from_host;
            dropping <= drop_now;
            if (s_last) host_last <= from_host;
        end
        used <= used + (A + 1)'(q_ready) - (A + 1)'(q_pop);
        if (rst) begin
            midway    <= 1'b0;
            host_last <= 1'b0;
            used      <= '0;
        end
    end

    multimqc_fifo #(.WIDTH(577), .DEPTH(BEATS)) queue (
        .clk, .rst,
        .s_data(from_host ? {s_host_tlast, s_host_tkeep, s_host_tdata} : {s_reply_tlast, s_reply_tkeep, s_reply_tdata}),
        .s_valid(q_ready), .s_ready(queue_ready),
        .m_data({q_last, q_keep, q_data}), .m_valid(q_valid), .m_ready(q_pop)
    );

    // --- Out: the parts of a beat, eight or one -------------------------------------------------------
    logic [PART_W-1:0]    part;
    wire  [PORT_BITS-1:0] part_data = q_data[part*PORT_BITS +: PORT_BITS];
    wire  [BYTES-1:0]     part_keep = q_keep[part*BYTES +: BYTES];
    // The first byte of the next part; the shift leaves none behind the last.
    wire  [63:0]          behind = q_keep >> (7'(part) * 7'(BYTES)) >> BYTES;
    // A beat ends with its last byte.
    wire                  beat_done = !behind[0];
    wire        ready = !m_tvalid || m_tready;

    assign q_pop      = q_valid && ready && beat_done;
    assign event_sent = q_pop && q_last;

    always_ff @(posedge clk) begin
        if (ready) begin
            m_tvalid <= q_valid;
            m_tdata  <= part_data;
            m_tkeep  <= part_keep;
            m_tlast  <= q_last && beat_done;
            if (q_valid) part <= beat_done ? '0 : part + 1'b1;
        end
        if (rst) begin
            m_tvalid <= 1'b0;
            part     <= '0;
        end
    end

endmodule
