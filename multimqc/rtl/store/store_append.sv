// Gives each message its offset, and writes it into the ring of its topic: one beat in each clock, always.
//
//   offset    floor                              committed      reserved
//             |  can be read                     |  in the pipe |
//   log   ----+----------------------------------+--------------+
//             |<- RING_BYTES - GUARD_BYTES, at most ----------->|
//
// `reserved` moves by the whole message with its first beat; `committed` moves with the write of its last beat, so half a message is
// never seen. A reader that was told that a range is above the floor has GUARD_BYTES / 64 clocks to begin: the ring overwrites at most
// 64 bytes in a clock, and a reader reads as many, so it stays ahead.
module store_append #(
    parameter int TOPICS      = 8,
    parameter int RING_BYTES  = 16384,
    parameter int GUARD_BYTES = 1024,
    localparam int ROW_W      = $clog2(TOPICS * RING_BYTES / 64)
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic [511:0]                        s_push_tdata,
    input  logic                                s_push_tlast,
    input  logic [multimqc_pkg::PUSH_USER_W-1:0] s_push_tuser,
    input  logic                                s_push_tvalid,
    output logic                                s_push_tready,
    input  logic                                cfg_open_valid,
    input  logic [7:0]                          cfg_open_topic,
    input  logic [63:0]                         cfg_open_offset,
    output logic [63:0]                         wr_enable,
    output logic [63:0]                         wr_later,
    output logic [ROW_W-1:0]                    wr_row,
    output logic [ROW_W-1:0]                    wr_next,
    output logic [511:0]                        wr_data,
    output logic [TOPICS*64-1:0]                committed,
    output logic [TOPICS*64-1:0]                floors,
    // A message was stored.
    output logic                                stored_valid,
    output logic [7:0]                          stored_topic,
    output logic [15:0]                         stored_bytes
);
    localparam int RING_ROW_W = $clog2(RING_BYTES / 64);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_GUARD, BUG_LATER, BUG_COMMIT;
    initial begin
        BUG_GUARD = $test$plusargs("BUG_GUARD") != 0;
        BUG_LATER = $test$plusargs("BUG_LATER") != 0;
        BUG_COMMIT = $test$plusargs("BUG_COMMIT") != 0;
    end
`else
    localparam logic BUG_GUARD = 1'b0;
    localparam logic BUG_LATER = 1'b0;
    localparam logic BUG_COMMIT = 1'b0;
`endif

    wire [63:0] window = BUG_GUARD ? 64'(RING_BYTES) : 64'(RING_BYTES) - 64'(GUARD_BYTES);

    if (TOPICS < 1 || TOPICS > 256) begin : g_topics
        $error("store_append: TOPICS is not 1 to 256");
    end
    if ((1 << $clog2(RING_BYTES)) != RING_BYTES || RING_BYTES < 2048) begin : g_ring
        $error("store_append: RING_BYTES is not a power of two of at least 2,048");
    end
    if (RING_BYTES - GUARD_BYTES < multimqc_pkg::OVERLAP_BYTES) begin : g_guard
        $error("store_append: the ring has no room for the guard and a packet");
    end

    // --- Offsets -----------------------------------------------------------------

    logic [63:0] reserved [TOPICS];
    logic [63:0] base [TOPICS];
    logic first;
    logic [63:0] next_at;
    logic [15:0] next_left;

    wire [TW-1:0] topic = s_push_tuser[multimqc_pkg::PUSH_TOPIC+:TW];
    wire [15:0] length = s_push_tuser[multimqc_pkg::PUSH_LENGTH+:16];
    wire [63:0] at = first ? reserved[topic] : next_at;
    wire [15:0] left = first ? length : next_left;
    wire [6:0] bytes = left >= 16'd64 ? 7'd64 : left[6:0];

    assign s_push_tready = 1'b1;

    logic moved_valid;
    logic [TW-1:0] moved_topic;
    wire [TW-1:0] open_topic = cfg_open_topic[TW-1:0];
    wire [63:0] moved_base = base[moved_topic];
    wire [63:0] moved_to = reserved[moved_topic];

    always_ff @(posedge clk) begin
        moved_valid <= s_push_tvalid && first;
        moved_topic <= topic;
        if (s_push_tvalid) begin
            first     <= s_push_tlast;
            next_at   <= at + 64'd64;
            next_left <= left - 16'd64;
            if (first) reserved[topic] <= at + {48'd0, length};
        end
        if (moved_valid) begin
            floors[64*moved_topic+:64] <= moved_to - moved_base > window ? moved_to - window : moved_base;
        end
        if (cfg_open_valid) begin
            reserved[open_topic]      <= cfg_open_offset;
            base[open_topic]          <= cfg_open_offset;
            floors[64*open_topic+:64] <= cfg_open_offset;
        end
        if (rst) begin
            first       <= 1'b1;
            moved_valid <= 1'b0;
            floors      <= '0;
            for (int i = 0; i < TOPICS; i++) begin
                reserved[i] <= '0;
                base[i]     <= '0;
            end
        end
    end

    // --- The way to the lanes ------------------------------------------------------

    localparam int SIDE_W = 1 + 1 + TW + RING_ROW_W + 7 + 64 + 16;
    logic s1_valid, s1_last, s3_valid, s3_last;
    logic [TW-1:0] s1_topic, s3_topic;
    logic [RING_ROW_W-1:0] s1_row, s3_row;
    logic [6:0] s1_bytes, s3_bytes;
    logic [63:0] s1_end, s3_end;
    logic [15:0] s1_length, s3_length;
    logic [5:0] s1_shift, s3_shift;
    logic [511:0] s1_data;
    logic [SIDE_W-1:0] s3_side;

    always_ff @(posedge clk) begin
        s1_valid  <= s_push_tvalid && !rst;
        s1_last   <= s_push_tlast;
        s1_topic  <= topic;
        s1_row    <= at[6+:RING_ROW_W];
        s1_bytes  <= bytes;
        s1_end    <= at + {57'd0, bytes};
        s1_length <= length;
        s1_shift  <= at[5:0];
        s1_data   <= s_push_tdata;
    end

    store_rotate #(
        .SIDE_W(SIDE_W)
    ) rotate (
        .clk,
        .in_data  (s1_data),
        .in_shift (s1_shift),
        .side_in  ({s1_valid, s1_last, s1_topic, s1_row, s1_bytes, s1_end, s1_length}),
        .out_data (wr_data),
        .out_shift(s3_shift),
        .side_out (s3_side)
    );

    assign {s3_valid, s3_last, s3_topic, s3_row, s3_bytes, s3_end, s3_length} = s3_side;

    logic [RING_ROW_W-1:0] s3_row_next;
    assign s3_row_next = s3_row + 1'b1;
    if (TOPICS > 1) begin : g_rows
        assign wr_row  = {s3_topic, s3_row};
        assign wr_next = {s3_topic, s3_row_next};
    end else begin : g_row
        assign wr_row  = s3_row;
        assign wr_next = s3_row_next;
    end

    always_comb begin
        for (int i = 0; i < 64; i++) begin
            wr_later[i] = 6'(i) < s3_shift && !BUG_LATER;
            wr_enable[i] = s3_valid && {1'b0, 6'(i) - s3_shift} < s3_bytes;
        end
    end

    wire commit = s3_valid && (s3_last || BUG_COMMIT);

    wire unused = &{1'b0, s_push_tuser, cfg_open_topic};
    assign stored_bytes = s3_length;
    assign stored_valid = commit;
    assign stored_topic = 8'(s3_topic);

    // A write and its commit meet in the same clock edge; a reader that sees the commit reads later.
    always_ff @(posedge clk) begin
        if (commit) committed[64*s3_topic+:64] <= s3_end;
        if (cfg_open_valid) committed[64*open_topic+:64] <= cfg_open_offset;
        if (rst) committed <= '0;
    end
endmodule
