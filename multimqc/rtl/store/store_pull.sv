// Read requests and their responses, in one order: each is answered by level 1, by level 2 if level 1 does not have the bytes any
// more, or with a status.
//
//   requests ─▶ store_read ─▶ decision ─▶ order ─▶ responses
//                               └─▶ requests for level 2 ─▶ store_level2 ─▶ its responses ─▲
module store_pull #(
    parameter int LEVEL2 = 1,    // whether there is a level 2
    parameter int PULLS  = 64    // most requests between both ends, a power of two
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [1:0]                               cfg_levels,
    input  logic [multimqc_pkg::READ_REQUEST_W-1:0]  s_read_data,
    input  logic                                     s_read_valid,
    output logic                                     s_read_ready,
    // To store_read, and from it.
    output logic                                     job_valid,
    input  logic                                     job_ready,
    output logic [96:0]                              job_data,
    input  logic                                     decided,
    input  logic                                     decided_hit,
    input  logic                                     decided_end,
    input  logic                                     decided_miss,
    input  logic                                     decided_summed,
    input  logic [7:0]                               decided_tag,
    input  logic [7:0]                               decided_topic,
    input  logic [63:0]                              decided_offset,
    input  logic [15:0]                              decided_length,
    input  logic [63:0]                              decided_committed,
    input  logic                                     s_valid,
    output logic                                     s_ready,
    input  logic [512:0]                             s_data,
    // The sums of the ranges that were decided with `decided_summed`, before their bytes.
    input  logic                                     sum_valid,
    input  logic [15:0]                              sum,
    // To level 2, and its responses. A request: {alone, tag, topic, offset, length}; `alone`: level 1 does not answer, so the log
    // ends where level 2 ends.
    output logic                                     level2_valid,
    output logic [96:0]                              level2_data,
    input  logic                                     level2_ready,
    input  logic [511:0]                             s_level2_tdata,
    input  logic [63:0]                              s_level2_tkeep,
    input  logic                                     s_level2_tlast,
    input  logic [multimqc_pkg::READ_RESPONSE_W-1:0] s_level2_tuser,
    input  logic                                     s_level2_tvalid,
    output logic                                     s_level2_tready,
    output logic [511:0]                             m_response_tdata,
    output logic [63:0]                              m_response_tkeep,
    output logic                                     m_response_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] m_response_tuser,
    output logic                                     m_response_tvalid,
    input  logic                                     m_response_tready
);
    localparam int TAG_AT = multimqc_pkg::READ_TAG;
    localparam int COUNT_W = $clog2(PULLS) + 1;
    localparam logic [1:0] FROM_LEVEL1 = 2'd0;
    localparam logic [1:0] FROM_LEVEL2 = 2'd1;
    localparam logic [1:0] FROM_NOBODY = 2'd2;

    // --- Requests -------------------------------------------------------------------

    logic [COUNT_W-1:0] pulls;
    wire may_begin = pulls != COUNT_W'(PULLS);
    wire begins = job_valid && job_ready;
    logic ends;

    assign job_valid    = s_read_valid && may_begin;
    assign s_read_ready = job_ready && may_begin;
    assign job_data = {!cfg_levels[0], s_read_data[TAG_AT+:8], s_read_data[multimqc_pkg::READ_TOPIC+:8],
                       s_read_data[multimqc_pkg::READ_OFFSET+:64], s_read_data[multimqc_pkg::READ_MAX+:16]};

    always_ff @(posedge clk) begin
        pulls <= pulls + COUNT_W'(begins) - COUNT_W'(ends);
        if (rst) pulls <= '0;
    end

    // --- Order ----------------------------------------------------------------------

    wire to_level2 = LEVEL2 != 0 && cfg_levels[1] && !decided_hit && (decided_miss || !decided_end);
    wire at_end = decided_end && !decided_miss;
    wire [1:0] from_now = decided_hit ? FROM_LEVEL1 : to_level2 ? FROM_LEVEL2 : FROM_NOBODY;
    wire [1:0] status_now = decided_hit ? multimqc_pkg::STATUS_HIT : at_end ? multimqc_pkg::STATUS_END
        : multimqc_pkg::STATUS_OVERWRITTEN;

    logic order_ready, order_valid, order_taken;
    logic [1:0] from, status;
    logic summed;
    logic [7:0] tag;
    logic [63:0] offset;
    logic [15:0] length;

    multimqc_fifo #(
        .WIDTH(1 + 2 + 2 + 8 + 64 + 16),
        .DEPTH(PULLS)
    ) order (
        .clk,
        .rst,
        .s_data ({decided_summed, from_now, status_now, decided_tag, at_end ? decided_committed : decided_offset,
                  decided_hit ? decided_length : 16'd0}),
        .s_valid(decided),
        .s_ready(order_ready),
        .m_data ({summed, from, status, tag, offset, length}),
        .m_valid(order_valid),
        .m_ready(order_taken)
    );

    logic [15:0] range_sum;
    logic sums_ready, sums_valid;
    multimqc_fifo #(
        .WIDTH(16),
        .DEPTH(PULLS)
    ) sums (
        .clk,
        .rst,
        .s_data (sum),
        .s_valid(sum_valid),
        .s_ready(sums_ready),
        .m_data (range_sum),
        .m_valid(sums_valid),
        .m_ready(order_taken && summed)
    );

    logic level2_full;
    multimqc_bypass_fifo #(
        .WIDTH(97),
        .DEPTH(PULLS)
    ) to_level_2 (
        .clk,
        .rst,
        .s_data ({decided_miss, decided_tag, decided_topic, decided_offset, decided_length}),
        .s_valid(decided && to_level2),
        .s_ready(level2_full),
        .m_data (level2_data),
        .m_valid(level2_valid),
        .m_ready(level2_ready)
    );

    // --- Responses ------------------------------------------------------------------

    logic [15:0] done;
    wire [15:0] left = length - done;
    wire [6:0] bytes = left >= 16'd64 ? 7'd64 : left[6:0];
    wire moves = m_response_tvalid && m_response_tready;

    always_comb begin
        m_response_tdata  = s_data[511:0];
        m_response_tkeep  = multimqc_pkg::keep_of(bytes);
        m_response_tlast  = s_data[512];
        m_response_tuser  = {summed, summed ? range_sum : 16'd0, tag, status, offset, length};
        m_response_tvalid = order_valid && s_valid;
        s_ready           = order_valid && m_response_tready;
        s_level2_tready   = 1'b0;
        if (from == FROM_LEVEL2) begin
            m_response_tdata  = s_level2_tdata;
            m_response_tkeep  = s_level2_tkeep;
            m_response_tlast  = s_level2_tlast;
            m_response_tuser  = s_level2_tuser;
            m_response_tvalid = order_valid && s_level2_tvalid;
            s_ready           = 1'b0;
            s_level2_tready   = order_valid && m_response_tready;
        end else if (from == FROM_NOBODY) begin
            m_response_tkeep  = '0;
            m_response_tlast  = 1'b1;
            m_response_tvalid = order_valid;
            s_ready           = 1'b0;
        end
    end

    assign order_taken = moves && m_response_tlast;
    assign ends        = order_taken;

    always_ff @(posedge clk) begin
        if (moves) done <= m_response_tlast ? 16'd0 : done + 16'd64;
        if (rst) done <= '0;
    end
    wire unused = &{1'b0, order_ready, level2_full, sums_ready, sums_valid};
endmodule
