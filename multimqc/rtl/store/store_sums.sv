// The sum of a range (multimqc_pkg::sum_of) before its bytes are read, for the checksum that stands before them.
//
//   a log       | row         | row         | row         |
//   noted       ^ sum of all  ^ sum of all  ^             sums of all bytes before a row
//   a range          |........|.............|....|
//                     first row, its rest         tail: the row in which it ends
//
//   sum of the range = rest of the first row + noted at the tail - noted at the row after the first + tail's bytes before the end
//
// So the tail and the first row are all that is read; a range ends in another row than it begins in. A sum is noted when the row before
// is full, two clocks later than its bytes, and read three clocks after these are committed. Words begin at even offsets; a range
// that begins at an odd one has its sum's bytes exchanged at the end.
module store_sums #(
    parameter int TOPICS = 8,
    parameter int ROWS   = 2048,
    parameter int ROW_W  = 11
) (
    input  logic             clk,
    input  logic             rst,
    // What store_ring gets.
    input  logic [63:0]      wr_enable,
    input  logic [63:0]      wr_later,
    input  logic [7:0]       wr_topic,
    input  logic [ROW_W-1:0] wr_next,
    input  logic [511:0]     wr_data,
    input  logic             rd_tail,
    input  logic             rd_first,
    input  logic [5:0]       rd_begin,
    input  logic [5:0]       rd_end,
    input  logic [ROW_W-1:0] rd_row,
    input  logic [ROW_W-1:0] rd_next,
    input  logic [511:0]     rd_data,   // a clock later
    output logic             sum_valid,
    output logic [15:0]      sum
);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_ODD, BUG_NOTE;
    initial begin
        BUG_ODD = $test$plusargs("BUG_ODD") != 0;
        BUG_NOTE = $test$plusargs("BUG_NOTE") != 0;
    end
`else
    localparam logic BUG_ODD = 1'b0;
    localparam logic BUG_NOTE = 1'b0;
`endif

    // --- Sums are noted ---------------------------------------------------------------

    // The bytes of a beat in its first row, and in the next one.
    logic w1_fills, w2_fills;
    logic [TW-1:0] w1_topic, w2_topic;
    logic [ROW_W-1:0] w1_next, w2_next;
    logic [20:0] w1_here, w1_there;
    logic [15:0] w2_here, w2_there;
    logic [15:0] running [TOPICS];
    wire [15:0] to_row = multimqc_pkg::folded(28'(running[w2_topic]) + 28'(w2_here));

    always_ff @(posedge clk) begin
        // The last byte of a row is never in the next one.
        w1_fills <= wr_enable[63] && !BUG_NOTE;
        w1_topic <= wr_topic[TW-1:0];
        w1_next  <= wr_next;
        w1_here  <= multimqc_pkg::sum_of(multimqc_pkg::masked(wr_data, wr_enable & ~wr_later));
        w1_there <= multimqc_pkg::sum_of(multimqc_pkg::masked(wr_data, wr_enable & wr_later));
        w2_fills <= w1_fills;
        w2_topic <= w1_topic;
        w2_next  <= w1_next;
        w2_here  <= multimqc_pkg::folded(28'(w1_here));
        w2_there <= multimqc_pkg::folded(28'(w1_there));
        running[w2_topic] <= multimqc_pkg::folded(28'(running[w2_topic]) + 28'(w2_here) + 28'(w2_there));
        if (rst) begin
            w1_fills <= 1'b0;
            w2_fills <= 1'b0;
            for (int i = 0; i < TOPICS; i++) running[i] <= '0;
        end
    end

    logic [15:0] noted;
    wire [ROW_W-1:0] note_at = rd_tail ? rd_row : rd_next;
    multimqc_ram #(
        .WIDTH(16),
        .DEPTH(ROWS),
        .A    (ROW_W)
    ) notes (
        .clk,
        .write        (w2_fills),
        .write_address(w2_next),
        .write_data   (to_row),
        .read         (rd_tail || rd_first),
        .read_address (note_at),
        .read_data    (noted)
    );

    // --- The sum of a range -------------------------------------------------------------

    logic r1_tail, r1_first, r1_odd, r2_tail, r2_first, r2_odd;
    logic [63:0] r1_keep;
    logic [20:0] r2_bytes;
    logic [15:0] r2_noted;
    logic [21:0] at_end;
    // Minus is plus the complement.
    wire [15:0] minus_noted = ~r2_noted;
    wire [15:0] in_words = multimqc_pkg::folded(28'(at_end) + 28'(r2_bytes) + 28'(minus_noted));

    always_ff @(posedge clk) begin
        r1_tail  <= rd_tail;
        r1_first <= rd_first;
        r1_odd   <= rd_begin[0] && !BUG_ODD;
        r1_keep  <= rd_tail ? multimqc_pkg::keep_of({1'b0, rd_end}) : ~multimqc_pkg::keep_of({1'b0, rd_begin});
        r2_tail  <= r1_tail;
        r2_first <= r1_first;
        r2_odd   <= r1_odd;
        r2_bytes <= multimqc_pkg::sum_of(multimqc_pkg::masked(rd_data, r1_keep));
        r2_noted <= noted;
        if (r2_tail) at_end <= 22'(r2_bytes) + 22'(r2_noted);
        if (rst) begin
            r1_first <= 1'b0;
            r2_first <= 1'b0;
        end
    end

    assign sum_valid = r2_first;
    assign sum = r2_odd ? {in_words[7:0], in_words[15:8]} : in_words;
    wire unused = &{1'b0, wr_topic};
endmodule
