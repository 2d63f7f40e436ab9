// A queue of words whose input is seen at its output in the same clock while it is empty. For what must not lose a clock.
module multimqc_bypass_fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] s_data,
    input  logic             s_valid,
    output logic             s_ready,
    output logic [WIDTH-1:0] m_data,
    output logic             m_valid,
    input  logic             m_ready
);
    logic [WIDTH-1:0] kept;
    logic             kept_valid;

    assign m_valid = kept_valid || (s_valid && s_ready);
    assign m_data  = kept_valid ? kept : s_data;

    multimqc_fifo #(.WIDTH(WIDTH), .DEPTH(DEPTH)) queue (
        .clk, .rst, .s_data, .s_valid(s_valid && (kept_valid || !m_ready)), .s_ready,
        .m_data(kept), .m_valid(kept_valid), .m_ready
    );
endmodule
