// An input function: drops messages whose number at AT lies in [LOW, HIGH]. A message that is too short for the number is kept, since
// nothing is known of it. The number is little endian and must lie in the first 64 bytes. One clock later, a beat in each clock.
module input_drop_range #(
    parameter int AT = 0,
    parameter int BYTES = 4,      // 1, 2, 4 or 8
    parameter int IS_SIGNED = 0,
    parameter longint LOW = 100,
    parameter longint HIGH = 200
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
    if (BYTES != 1 && BYTES != 2 && BYTES != 4 && BYTES != 8) begin : g_bytes
        $error("input_drop_range: BYTES is not 1, 2, 4 or 8");
    end
    if (AT < 0 || AT + BYTES > 64) begin : g_at
        $error("input_drop_range: the number is not in the first 64 bytes");
    end

    logic first, dropping;
    wire [8*BYTES-1:0] number = s_tdata[8*AT+:8*BYTES];
    // A bit more than 64: unsigned numbers of 8 bytes, too, are compared as they are.
    wire sign = IS_SIGNED != 0 && number[8*BYTES-1];
    wire signed [64:0] value = {{65 - 8 * BYTES{sign}}, number};
    wire signed [64:0] low = 65'(LOW);
    wire signed [64:0] high = 65'(HIGH);
    wire has_it = s_tuser[multimqc_pkg::PUSH_LENGTH+:16] >= 16'(AT + BYTES);
    wire drops_now = first ? has_it && value >= low && value <= high : dropping;

    always_ff @(posedge clk) begin
        m_tdata  <= s_tdata;
        m_tlast  <= s_tlast;
        m_tuser  <= s_tuser;
        m_tvalid <= s_tvalid && !drops_now && !rst;
        dropped  <= s_tvalid && drops_now && s_tlast && !rst;
        if (s_tvalid) begin
            first    <= s_tlast;
            dropping <= drops_now;
        end
        if (rst) first <= 1'b1;
    end
endmodule
