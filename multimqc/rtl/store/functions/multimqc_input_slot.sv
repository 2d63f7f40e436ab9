// The place of the input functions, between the front end and the store: a topic has none (0), drops messages by the range of a
// number (1), or stores one field of each (2). One clock, a beat in each clock, whichever it is. Without FUNCTIONS, nothing is here.
//
// A message keeps the function that its topic has with its first beat.
module multimqc_input_slot #(
    parameter int TOPICS = 4,
    parameter int FUNCTIONS = 1,
    parameter int NUMBER_AT = 0,
    parameter int NUMBER_BYTES = 4,
    parameter int NUMBER_IS_SIGNED = 0,
    parameter longint DROP_LOW = 100,
    parameter longint DROP_HIGH = 200,
    parameter int FIELD_AT = 0,
    parameter int FIELD_BYTES = 4
) (
    input  logic                                 clk,
    input  logic                                 rst,
    input  logic [TOPICS*2-1:0]                  cfg_function,
    input  logic [511:0]                         s_tdata,
    input  logic                                 s_tlast,
    input  logic [multimqc_pkg::PUSH_USER_W-1:0] s_tuser,
    input  logic                                 s_tvalid,
    output logic [511:0]                         m_tdata,
    output logic                                 m_tlast,
    output logic [multimqc_pkg::PUSH_USER_W-1:0] m_tuser,
    output logic                                 m_tvalid,
    // For one clock, with the m_tuser of its message.
    output logic                                 dropped
);
    if (FUNCTIONS == 0) begin : g_none
        assign m_tdata  = s_tdata;
        assign m_tlast  = s_tlast;
        assign m_tuser  = s_tuser;
        assign m_tvalid = s_tvalid;
        assign dropped  = 1'b0;
        wire unused = &{1'b0, clk, rst, cfg_function};
    end else begin : g_functions
        localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
        logic first;
        logic [1:0] kept, was;
        wire [TW-1:0] topic = s_tuser[multimqc_pkg::PUSH_TOPIC+:TW];
        wire [1:0] chosen = first ? cfg_function[2*topic+:2] : kept;

        logic [511:0] plain_tdata, range_tdata, field_tdata;
        logic plain_tlast, range_tlast, field_tlast, plain_tvalid, range_tvalid, field_tvalid, range_dropped, field_dropped;
        logic [multimqc_pkg::PUSH_USER_W-1:0] plain_tuser, range_tuser, field_tuser;

        always_ff @(posedge clk) begin
            plain_tdata  <= s_tdata;
            plain_tlast  <= s_tlast;
            plain_tuser  <= s_tuser;
            plain_tvalid <= s_tvalid && chosen != 2'd1 && chosen != 2'd2 && !rst;
            was          <= chosen;
            if (s_tvalid) begin
                first <= s_tlast;
                kept  <= chosen;
            end
            if (rst) first <= 1'b1;
        end

        input_drop_range #(
            .AT       (NUMBER_AT),
            .BYTES    (NUMBER_BYTES),
            .IS_SIGNED(NUMBER_IS_SIGNED),
            .LOW      (DROP_LOW),
            .HIGH     (DROP_HIGH)
        ) drop_range (
            .clk,
            .rst,
            .s_tdata,
            .s_tlast,
            .s_tuser,
            .s_tvalid(s_tvalid && chosen == 2'd1),
            .m_tdata (range_tdata),
            .m_tlast (range_tlast),
            .m_tuser (range_tuser),
            .m_tvalid(range_tvalid),
            .dropped (range_dropped)
        );

        input_extract_field #(
            .AT   (FIELD_AT),
            .BYTES(FIELD_BYTES)
        ) extract_field (
            .clk,
            .rst,
            .s_tdata,
            .s_tlast,
            .s_tuser,
            .s_tvalid(s_tvalid && chosen == 2'd2),
            .m_tdata (field_tdata),
            .m_tlast (field_tlast),
            .m_tuser (field_tuser),
            .m_tvalid(field_tvalid),
            .dropped (field_dropped)
        );

        always_comb begin
            m_tdata = plain_tdata;
            m_tlast = plain_tlast;
            m_tuser = plain_tuser;
            if (was == 2'd1) begin
                m_tdata = range_tdata;
                m_tlast = range_tlast;
                m_tuser = range_tuser;
            end else if (was == 2'd2) begin
                m_tdata = field_tdata;
                m_tlast = field_tlast;
                m_tuser = field_tuser;
            end
            m_tvalid = plain_tvalid || range_tvalid || field_tvalid;
            dropped  = range_dropped || field_dropped;
        end
    end
endmodule
