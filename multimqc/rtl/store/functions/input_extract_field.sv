// An input function: stores BYTES bytes of each message, from AT on, and nothing else of it. A message that is too short to have them
// is dropped. The field must lie in the first 64 bytes. One clock later, a beat in each clock.
module input_extract_field #(
    parameter int AT = 0,
    parameter int BYTES = 4
) (
    input  logic                                 clk,
    input  logic                                 rst,
    input  logic [511:0]                         s_tdata,
    input  logic                                 s_tlast,
    input  logic [multimqc_pkg::PUSH_USER_W-1:0] s_tuser,
    input  logic                                 s_tvalid,
    output logic [511:0]                         m_tdata,
    output logic                                 m_tlast,
    output logic [multimqc_pkg::PUSH_USER_W-1:0] m_tuser,
    output logic                                 m_tvalid,
    output logic                                 dropped
);
    if (AT < 0 || BYTES < 1 || AT + BYTES > 64) begin : g_at
        $error("input_extract_field: the field is not in the first 64 bytes");
    end

    logic first;
    wire has_it = s_tuser[multimqc_pkg::PUSH_LENGTH+:16] >= 16'(AT + BYTES);

    always_ff @(posedge clk) begin
        m_tdata <= s_tdata >> (8 * AT);
        m_tlast <= 1'b1;
        m_tuser <= s_tuser;
        m_tuser[multimqc_pkg::PUSH_LENGTH+:16] <= 16'(BYTES);
        m_tvalid <= s_tvalid && first && has_it && !rst;
        dropped  <= s_tvalid && first && !has_it && !rst;
        if (s_tvalid) first <= s_tlast;
        if (rst) first <= 1'b1;
    end
endmodule
