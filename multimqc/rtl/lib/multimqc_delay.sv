// Words a number of clocks later; without any, the same wires.
module multimqc_delay #(
    parameter int WIDTH  = 8,
    parameter int CLOCKS = 1
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] s_data,
    output logic [WIDTH-1:0] m_data
);
    if (CLOCKS == 0) begin : gen_wires
        wire unused = clk;
        assign m_data = s_data;
    end else begin : gen_registers
        logic [CLOCKS*WIDTH-1:0] words;
        assign m_data = words[CLOCKS*WIDTH-1 -: WIDTH];
        always_ff @(posedge clk) words <= (CLOCKS * WIDTH)'({words, s_data});
    end
endmodule
