// All example functions side by side, for tests: a for dropped ranges, b for extracted fields.
module functions_tb (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [511:0]                             s_tdata,
    input  logic                                     s_tlast,
    input  logic [multimqc_pkg::PUSH_USER_W-1:0]     s_tuser,
    input  logic                                     s_tvalid,
    output logic [511:0]                             a_tdata,
    output logic                                     a_tlast,
    output logic [multimqc_pkg::PUSH_USER_W-1:0]     a_tuser,
    output logic                                     a_tvalid,
    output logic                                     a_dropped,
    output logic [511:0]                             b_tdata,
    output logic                                     b_tlast,
    output logic [multimqc_pkg::PUSH_USER_W-1:0]     b_tuser,
    output logic                                     b_tvalid,
    output logic                                     b_dropped,
    input  logic [511:0]                             r_tdata,
    input  logic [63:0]                              r_tkeep,
    input  logic                                     r_tlast,
    input  logic [multimqc_pkg::READ_RESPONSE_W-1:0] r_tuser,
    input  logic                                     ra_valid,
    input  logic                                     rb_valid,
    output logic                                     ra_ready,
    output logic                                     rb_ready,
    output logic [511:0]                             oa_tdata,
    output logic [63:0]                              oa_tkeep,
    output logic                                     oa_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] oa_tuser,
    output logic                                     oa_tvalid,
    output logic [511:0]                             ob_tdata,
    output logic [63:0]                              ob_tkeep,
    output logic                                     ob_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] ob_tuser,
    output logic                                     ob_tvalid,
    input  logic                                     o_tready
);
    input_drop_range #(
        .AT       (2),
        .BYTES    (4),
        .IS_SIGNED(1),
        .LOW      (-5),
        .HIGH     (100)
    ) drop_range (
        .clk,
        .rst,
        .s_tdata,
        .s_tlast,
        .s_tuser,
        .s_tvalid,
        .m_tdata (a_tdata),
        .m_tlast (a_tlast),
        .m_tuser (a_tuser),
        .m_tvalid(a_tvalid),
        .dropped (a_dropped)
    );

    input_extract_field #(
        .AT   (3),
        .BYTES(6)
    ) extract_field (
        .clk,
        .rst,
        .s_tdata,
        .s_tlast,
        .s_tuser,
        .s_tvalid,
        .m_tdata (b_tdata),
        .m_tlast (b_tlast),
        .m_tuser (b_tuser),
        .m_tvalid(b_tvalid),
        .dropped (b_dropped)
    );

    output_records #(
        .FUNCTION    (1),
        .RECORD_BYTES(16),
        .AT          (4),
        .FIELD_BYTES (4),
        .IS_SIGNED   (1),
        .LOW         (-5),
        .HIGH        (100)
    ) output_drop (
        .clk,
        .rst,
        .s_tdata (r_tdata),
        .s_tkeep (r_tkeep),
        .s_tlast (r_tlast),
        .s_tuser (r_tuser),
        .s_tvalid(ra_valid),
        .s_tready(ra_ready),
        .m_tdata (oa_tdata),
        .m_tkeep (oa_tkeep),
        .m_tlast (oa_tlast),
        .m_tuser (oa_tuser),
        .m_tvalid(oa_tvalid),
        .m_tready(o_tready)
    );

    output_records #(
        .FUNCTION    (2),
        .RECORD_BYTES(32),
        .AT          (8),
        .FIELD_BYTES (5)
    ) output_extract (
        .clk,
        .rst,
        .s_tdata (r_tdata),
        .s_tkeep (r_tkeep),
        .s_tlast (r_tlast),
        .s_tuser (r_tuser),
        .s_tvalid(rb_valid),
        .s_tready(rb_ready),
        .m_tdata (ob_tdata),
        .m_tkeep (ob_tkeep),
        .m_tlast (ob_tlast),
        .m_tuser (ob_tuser),
        .m_tvalid(ob_tvalid),
        .m_tready(o_tready)
    );
endmodule
