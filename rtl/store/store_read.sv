// Reads ranges from the rings for three readers: pulls (0), batches for the host (1), and level 2 (2).
//
//   requests ─▶ arbiter ─▶ job ─▶ decision: is the range here? ─▶ burst ─▶ lanes ─▶ rotate ─▶ FIFO of the reader
//                           └─ floor and committed of its topic, read again in each clock that it waits
//
// A burst is never interrupted, since its FIFO has room for all of it before it begins: it reads 64 bytes in each clock, as fast as a ring
// can be overwritten. What has been overwritten since the look at the floor, at most eight clocks before the first beat is read, is what
// the guard of store_append is made for. The bytes of reader 2 stay in their lanes (offset % 64);
// those of the others begin with lane 0.
module store_read #(
    parameter int TOPICS      = 8,
    parameter int RING_BYTES  = 16384,
    parameter int GUARD_BYTES = 1024,
    parameter int FIFO_BEATS  = 64,
    localparam int ROW_W      = $clog2(TOPICS * RING_BYTES / 64)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [TOPICS*64-1:0] committed,
    input  logic [TOPICS*64-1:0] floors,
    // Requests: {miss, tag, topic, offset, length}. `miss`: level 1 shall not answer.
    input  logic [2:0]           job_valid,
    output logic [2:0]           job_ready,
    input  logic [3*97-1:0]      job_data,
    // Decisions, for one clock, in the order of the requests of a reader. `length` bytes follow on the stream of the reader for a
    // hit, at least 1.
    output logic [2:0]           decided,
    output logic                 decided_hit,
    output logic                 decided_end,
    output logic                 decided_miss,
    output logic [7:0]           decided_tag,
    output logic [7:0]           decided_topic,
    output logic [63:0]          decided_offset,
    output logic [15:0]          decided_length,
    output logic [63:0]          decided_floor,
    output logic [63:0]          decided_committed,
    // The lanes.
    output logic                 rd_enable,
    output logic [63:0]          rd_later,
    output logic [ROW_W-1:0]     rd_row,
    output logic [ROW_W-1:0]     rd_next,
    input  logic [511:0]         rd_data,
    // The bytes, for each reader: {last, data}.
    output logic [2:0]           m_valid,
    input  logic [2:0]           m_ready,
    output logic [3*513-1:0]     m_data
);
    localparam int RING_ROW_W = $clog2(RING_BYTES / 64);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int MAX_BYTES = multimqc_pkg::MAX_MESSAGE_BYTES;
    localparam int MAX_BEATS = (MAX_BYTES + 63 + 63) / 64;
    localparam int CREDIT_W = $clog2(FIFO_BEATS) + 1;

    if (GUARD_BYTES < 64 * 12) begin : g_guard
        $error("store_read: GUARD_BYTES is too small for the way from the decision to the first beat");
    end
    if (FIFO_BEATS < MAX_BEATS) begin : g_fifo
        $error("store_read: the longest burst does not fit into FIFO_BEATS");
    end

`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_SHIFT;
    initial begin
        BUG_SHIFT = $test$plusargs("BUG_SHIFT") != 0;
    end
`else
    localparam logic BUG_SHIFT = 1'b0;
`endif

    // --- Which request is next -----------------------------------------------------

    logic [2:0] wants;
    logic [2:0] grant;
    logic [3*CREDIT_W-1:0] credits;
    logic [3*7-1:0] needs;
    logic [15:0] limited;

    logic job_full, job_taken;
    logic [1:0] job_reader;
    logic [6:0] job_beats;
    logic job_miss;
    logic [7:0] job_tag, job_topic;
    logic [63:0] job_offset, job_floor, job_committed;
    logic [15:0] job_length;

    // The most beats that a request can take: its offset in a row counts only for reader 2.
    function automatic logic [6:0] beats_of(input logic [15:0] length, input logic [5:0] skip);
        beats_of = 7'((length + {10'd0, skip} + 16'd63) >> 6);
    endfunction

    function automatic logic [15:0] at_most(input logic [15:0] length);
        at_most = length > 16'(MAX_BYTES) ? 16'(MAX_BYTES) : length;
    endfunction

    always_comb begin
        for (int i = 0; i < 3; i++) begin
            needs[7*i+:7] = beats_of(at_most(job_data[97*i+:16]), i == 2 ? job_data[97*i+16+:6] : 6'd0);
            wants[i] = job_valid[i] && {1'b0, credits[CREDIT_W*i+:CREDIT_W]} >= (CREDIT_W + 1)'(needs[7*i+:7]);
        end
    end

    store_arbiter #(
        .N       (3),
        .PATIENCE(32)
    ) arbiter (
        .clk,
        .rst,
        .request(wants),
        .enable (!job_full || job_taken),
        .grant
    );

    assign job_ready = grant;

    logic [96:0] chosen;
    logic [6:0] chosen_beats;
    logic [1:0] chosen_reader;
    logic [TW-1:0] looked_up;

    always_comb begin
        chosen = job_data[0+:97];
        chosen_beats = needs[0+:7];
        chosen_reader = 2'd0;
        for (int i = 1; i < 3; i++) begin
            if (grant[i]) begin
                chosen = job_data[97*i+:97];
                chosen_beats = needs[7*i+:7];
                chosen_reader = 2'(i);
            end
        end
        limited   = at_most(chosen[15:0]);
        looked_up = grant != 3'd0 ? chosen[80+:TW] : job_topic[TW-1:0];
    end

    always_ff @(posedge clk) begin
        job_floor     <= floors[64*looked_up+:64];
        job_committed <= committed[64*looked_up+:64];
        if (grant != 3'd0) begin
            job_full   <= 1'b1;
            job_reader <= chosen_reader;
            job_beats  <= chosen_beats;
            {job_miss, job_tag, job_topic, job_offset} <= chosen[96:16];
            job_length <= limited;
        end else if (job_taken) begin
            job_full <= 1'b0;
        end
        if (rst) job_full <= 1'b0;
    end

    // --- The decision ----------------------------------------------------------------

    logic burst_busy, burst_free;
    wire [63:0] ahead = job_committed - job_offset;
    wire reached = job_offset < job_committed;
    wire kept = job_offset >= job_floor;
    wire [15:0] there = ahead >= {48'd0, job_length} ? job_length : ahead[15:0];
    wire hit = reached && kept && !job_miss;
    wire [6:0] beats = beats_of(there, job_reader == 2'd2 ? job_offset[5:0] : 6'd0);

    assign job_taken         = job_full && burst_free;
    assign decided           = job_taken ? 3'd1 << job_reader : 3'd0;
    assign decided_hit       = hit;
    assign decided_end       = !reached;
    assign decided_miss      = job_miss;
    assign decided_tag       = job_tag;
    assign decided_topic     = job_topic;
    assign decided_offset    = job_offset;
    assign decided_length    = reached ? there : job_length;
    assign decided_floor     = job_floor;
    assign decided_committed = job_committed;

    // --- The burst ---------------------------------------------------------------------

    logic [1:0] burst_reader;
    logic [6:0] burst_left;
    logic [TW-1:0] burst_topic;
    logic [RING_ROW_W-1:0] burst_row;
    logic [5:0] burst_shift;

    assign burst_free = !burst_busy || burst_left == 7'd1;

    always_ff @(posedge clk) begin
        if (burst_busy) begin
            burst_left <= burst_left - 7'd1;
            burst_row  <= burst_row + 1'b1;
            if (burst_left == 7'd1) burst_busy <= 1'b0;
        end
        if (job_taken && hit) begin
            burst_busy   <= 1'b1;
            burst_reader <= job_reader;
            burst_left   <= beats;
            burst_topic  <= job_topic[TW-1:0];
            burst_row    <= job_offset[6+:RING_ROW_W];
            burst_shift  <= job_reader == 2'd2 ? 6'd0 : job_offset[5:0];
        end
        if (rst) burst_busy <= 1'b0;
    end

    logic [RING_ROW_W-1:0] burst_row_next;
    assign burst_row_next = burst_row + 1'b1;
    assign rd_enable = burst_busy;
    if (TOPICS > 1) begin : g_rows
        assign rd_row  = {burst_topic, burst_row};
        assign rd_next = {burst_topic, burst_row_next};
    end else begin : g_row
        assign rd_row  = burst_row;
        assign rd_next = burst_row_next;
    end
    always_comb for (int i = 0; i < 64; i++) rd_later[i] = 6'(i) < burst_shift;

    logic s1_valid, s1_last, s3_valid, s3_last;
    logic [1:0] s1_reader, s3_reader;
    logic [5:0] s1_shift, s3_shift;
    logic [511:0] s3_data;

    always_ff @(posedge clk) begin
        s1_valid  <= burst_busy && !rst;
        s1_last   <= burst_left == 7'd1;
        s1_reader <= burst_reader;
        s1_shift  <= burst_shift;
    end

    // To the right by the shift is to the left by what is missing to 64.
    wire [5:0] left_shift = 6'd0 - (BUG_SHIFT ? s1_shift & 6'h3e : s1_shift);
    store_rotate #(
        .SIDE_W(4)
    ) rotate (
        .clk,
        .in_data  (rd_data),
        .in_shift (left_shift),
        .side_in  ({s1_valid, s1_last, s1_reader}),
        .out_data (s3_data),
        .out_shift(s3_shift),
        .side_out ({s3_valid, s3_last, s3_reader})
    );
    wire unused = &{1'b0, s3_shift};

    // --- A FIFO for each reader ----------------------------------------------------------

    for (genvar i = 0; i < 3; i++) begin : g_reader
        logic ready;  // always high: the credits see to it
        wire unused_ready = &{1'b0, ready};
        multimqc_fifo #(
            .WIDTH(513),
            .DEPTH(FIFO_BEATS)
        ) fifo (
            .clk,
            .rst,
            .s_data ({s3_last, s3_data}),
            .s_valid(s3_valid && s3_reader == 2'(i)),
            .s_ready(ready),
            .m_data (m_data[513*i+:513]),
            .m_valid(m_valid[i]),
            .m_ready(m_ready[i])
        );

        // Room that no request has.
        wire [6:0] taken = grant[i] ? needs[7*i+:7] : 7'd0;
        wire [6:0] back = decided[i] ? job_beats - (hit ? beats : 7'd0) : 7'd0;
        wire popped = m_valid[i] && m_ready[i];
        always_ff @(posedge clk) begin
            credits[CREDIT_W*i+:CREDIT_W] <= credits[CREDIT_W*i+:CREDIT_W] - CREDIT_W'(taken) + CREDIT_W'(back)
                + {{CREDIT_W - 1{1'b0}}, popped};
            if (rst) credits[CREDIT_W*i+:CREDIT_W] <= CREDIT_W'(FIFO_BEATS);
        end
    end
endmodule
