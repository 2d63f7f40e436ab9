// Reads ranges from the rings for three readers: pulls (0), batches for the host (1), and level 2 (2).
//
//   requests ─▶ arbiter ─▶ job ─▶ decision: is the range here? ─▶ burst ─▶ lanes ─▶ rotate ─▶ FIFO of the reader
//                           └─ floor and committed of its topic, read again in each clock that it waits
//
// A burst's FIFO has room for all of it before it begins, so it reads 64 bytes in each clock, as fast as a ring can be
// overwritten. Bytes that were overwritten since the look at the floor, at most nine clocks before the first beat is read,
// are the reason for the guard of store_append. The bytes of reader 2 stay in their lanes (offset % 64); those of the
// others begin with lane 0.
//
// Pulls go first. A pull interrupts a burst of readers 1 and 2, which goes on behind it: INTERRUPT_BEATS beats of pulls at most, and only
// where its range is so near to the head of its log (HURRY_BYTES) that it cannot be overwritten by then. A reader which is further
// behind than that goes before pulls, and is not interrupted; between its ranges pulls wait too. Then they have one clock in 48
// (store_arbiter): with batches and level 2 at the line rate, 2 of the 3 % that these leave. No bytes are lost since pulls were quick.
//
// A long pull reads the row in which its range ends first, its tail, so that its sum is known before its bytes are (store_sums). One of
// SUMLESS_BEATS or fewer is not worth this beat.
module store_read #(
    parameter int TOPICS      = 8,
    parameter int RING_BYTES  = 16384,
    parameter int GUARD_BYTES = 1024,
    parameter int FIFO_BEATS  = 64,
    parameter int HURRY_BYTES = RING_BYTES / 4,
    parameter int INTERRUPT_BEATS = RING_BYTES < 16384 ? 0 : RING_BYTES < 32768 ? 64 : 128,
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
    output logic                 decided_summed,
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
    // For store_sums, beside the row that is read: that it is a tail, or the first one of a range that has one.
    output logic                 rd_tail,
    output logic                 rd_first,
    output logic [5:0]           rd_begin,  // where the range begins in its row
    output logic [5:0]           rd_end,    // and ends in its tail
    // The bytes, for each reader: {last, data}.
    output logic [2:0]           m_valid,
    input  logic [2:0]           m_ready,
    output logic [3*513-1:0]     m_data
);
    localparam int RING_ROW_W = $clog2(RING_BYTES / 64);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int MAX_BYTES = multimqc_pkg::MAX_MESSAGE_BYTES;
    localparam int MAX_BEATS = (MAX_BYTES + 63 + 63) / 64;
    localparam int SUMLESS_BEATS = 4;
    localparam int CREDIT_W = $clog2(FIFO_BEATS) + 1;

    if (GUARD_BYTES < 64 * 12) begin : g_guard
        $error("store_read: GUARD_BYTES is too small for the way from the decision to the first beat");
    end
    if (FIFO_BEATS < MAX_BEATS) begin : g_fifo
        $error("store_read: the longest burst does not fit into FIFO_BEATS");
    end

    // A log may grow by a beat in each clock from the look at its head to the last beat of an interrupted burst, and by what is on its
    // way then: a message, and some beats.
    if (INTERRUPT_BEATS != 0 && HURRY_BYTES + MAX_BYTES + 64 * (INTERRUPT_BEATS + MAX_BEATS + 16) > RING_BYTES) begin : g_interrupt
        $error("store_read: an interrupted burst could be overwritten: a larger RING_BYTES or fewer INTERRUPT_BEATS help");
    end

`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_SHIFT, BUG_RESUME, BUG_WAIT;
    initial begin
        BUG_SHIFT = $test$plusargs("BUG_SHIFT") != 0;
        BUG_RESUME = $test$plusargs("BUG_RESUME") != 0;
        BUG_WAIT = $test$plusargs("BUG_WAIT") != 0;
    end
`else
    localparam logic BUG_SHIFT = 1'b0;
    localparam logic BUG_RESUME = 1'b0;
    localparam logic BUG_WAIT = 1'b0;
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

    // How far a reader is behind the head of its log, and for some clocks after it had its turn, how far it was: its next range comes
    // in that time if it can.
    logic [2:0] behind, hurry;
    logic [3*4-1:0] between;
    always_comb begin
        for (int i = 0; i < 3; i++) hurry[i] = behind[i] && (wants[i] || between[4*i+:4] != 4'd0);
    end
    always_ff @(posedge clk) begin
        for (int i = 0; i < 3; i++) begin
            if (job_valid[i]) begin
                behind[i] <= i != 0 && committed[64*job_data[97*i+80+:TW]+:32] - job_data[97*i+16+:32] >= 32'(HURRY_BYTES);
            end
            between[4*i+:4] <= grant[i] ? 4'd15 : between[4*i+:4] - 4'(between[4*i+:4] != 4'd0);
        end
        if (rst) begin
            behind  <= '0;
            between <= '0;
        end
    end

    logic begins;
    wire [6:0] beats, takes;
    // A pull may wait for its burst behind another; a job of the others is taken only if its burst can begin at once, so that no pull
    // waits behind it.
    logic burst_busy, held_valid;
    logic [1:0] burst_reader;
    logic [6:0] burst_left;
    wire free_soon = !job_full && !held_valid && (!burst_busy || burst_left <= 7'd2);
    // While a burst of readers 1 or 2 goes on, which pulls interrupt for a while only, the others of them wait, if they are not in a hurry.
    wire goes_on = held_valid || (burst_busy && burst_reader != 2'd0 && burst_left > 7'd2);
    wire [2:0] asks = wants & ({3{!goes_on}} | hurry | 3'd1);

    store_arbiter #(
        .N(3)
    ) arbiter (
        .clk,
        .rst,
        .request(asks),
        .first_beats(begins && job_reader == 2'd0 ? takes : 7'd0),
        .hurry,
        .enable ({free_soon, free_soon, !job_full || job_taken}),
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

    logic burst_free, pull_may_go;
    wire [63:0] ahead = job_committed - job_offset;
    wire reached = job_offset < job_committed;
    wire kept = job_offset >= job_floor;
    wire [15:0] there = ahead >= {48'd0, job_length} ? job_length : ahead[15:0];
    wire hit = reached && kept && !job_miss;
    wire summed = hit && job_reader == 2'd0 && beats > 7'(SUMLESS_BEATS);
    wire [RING_ROW_W+5:0] range_end = job_offset[0+:RING_ROW_W+6] + (RING_ROW_W + 6)'(there);
    assign beats = beats_of(there, job_reader == 2'd2 ? job_offset[5:0] : 6'd0);
    assign takes = beats + 7'(summed);

    assign job_taken         = job_full && (job_reader == 2'd0 ? pull_may_go : burst_free && !held_valid);
    assign decided           = job_taken ? 3'd1 << job_reader : 3'd0;
    assign decided_hit       = hit;
    assign decided_end       = !reached;
    assign decided_miss      = job_miss;
    assign decided_summed    = summed;
    assign decided_tag       = job_tag;
    assign decided_topic     = job_topic;
    assign decided_offset    = job_offset;
    assign decided_length    = reached ? there : job_length;
    assign decided_floor     = job_floor;
    assign decided_committed = job_committed;

    // --- The burst ---------------------------------------------------------------------

    // A burst of readers 1 or 2 that was interrupted is held until the pulls are through.
    logic [1:0] held_reader;
    logic [6:0] held_left;
    logic [TW-1:0] burst_topic, held_topic;
    logic [RING_ROW_W-1:0] burst_row, held_row, tail_row;
    logic burst_tail, burst_first;  // the tail is read now, or the beat after it
    logic [5:0] tail_bytes;
    logic [5:0] burst_shift, held_shift;
    logic [7:0] wait_left;  // beats of pulls for which the burst of readers 1 or 2 that is going on may still wait

    assign burst_free = !burst_busy || burst_left == 7'd1;
    wire may_wait = wait_left >= 8'(MAX_BEATS + 1);
    assign begins = job_taken && hit;
    wire interrupts = begins && !burst_free;
    assign pull_may_go = burst_free ? !held_valid || may_wait : burst_reader != 2'd0 && may_wait && !BUG_WAIT;

    always_ff @(posedge clk) begin
        burst_tail  <= 1'b0;
        burst_first <= burst_tail;
        if (burst_busy && !burst_tail) begin
            burst_left <= burst_left - 7'd1;
            burst_row  <= burst_row + 1'b1;
            if (burst_left == 7'd1) burst_busy <= 1'b0;
        end
        if (interrupts) begin
            held_valid  <= 1'b1;
            held_reader <= burst_reader;
            held_left   <= burst_left - 7'd1;
            held_topic  <= burst_topic;
            held_row    <= BUG_RESUME ? burst_row : burst_row + 1'b1;
            held_shift  <= burst_shift;
        end
        if (begins) begin
            burst_busy   <= 1'b1;
            burst_reader <= job_reader;
            burst_left   <= beats;
            burst_topic  <= job_topic[TW-1:0];
            burst_row    <= job_offset[6+:RING_ROW_W];
            burst_shift  <= job_reader == 2'd2 ? 6'd0 : job_offset[5:0];
            burst_tail   <= summed;
            tail_row     <= range_end[6+:RING_ROW_W];
            tail_bytes   <= range_end[5:0];
            if (job_reader == 2'd0) wait_left <= wait_left - {1'b0, takes};
            else wait_left <= ahead < 64'(HURRY_BYTES) ? 8'(INTERRUPT_BEATS) : 8'd0;
        end else if (burst_free && held_valid) begin
            held_valid   <= 1'b0;
            burst_busy   <= 1'b1;
            burst_reader <= held_reader;
            burst_left   <= held_left;
            burst_topic  <= held_topic;
            burst_row    <= held_row;
            burst_shift  <= held_shift;
        end
        if (rst) begin
            burst_busy <= 1'b0;
            burst_tail <= 1'b0;
            held_valid <= 1'b0;
        end
    end

    logic [RING_ROW_W-1:0] row_now, burst_row_next;
    assign row_now = burst_tail ? tail_row : burst_row;
    assign burst_row_next = burst_row + 1'b1;
    assign rd_enable = burst_busy;
    assign rd_tail   = burst_tail;
    assign rd_first  = burst_first;
    assign rd_begin  = burst_shift;
    assign rd_end    = tail_bytes;
    if (TOPICS > 1) begin : g_rows
        assign rd_row  = {burst_topic, row_now};
        assign rd_next = {burst_topic, burst_row_next};
    end else begin : g_row
        assign rd_row  = row_now;
        assign rd_next = burst_row_next;
    end
    always_comb for (int i = 0; i < 64; i++) rd_later[i] = 6'(i) < burst_shift && !burst_tail;

    logic s1_valid, s1_last, s3_valid, s3_last;
    logic [1:0] s1_reader, s3_reader;
    logic [5:0] s1_shift, s3_shift;
    logic [511:0] s3_data;

    always_ff @(posedge clk) begin
        s1_valid  <= burst_busy && !burst_tail && !rst;
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
