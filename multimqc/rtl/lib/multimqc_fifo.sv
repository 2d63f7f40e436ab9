// A queue of words in distributed RAM: what is written in one clock can be read in the next.
module multimqc_fifo #(
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
`ifdef FORMAL
    // For the proof, which cannot look inside.
    , output logic [$clog2(DEPTH):0] formal_written,
    output logic [$clog2(DEPTH):0] formal_taken,
    output logic [WIDTH*DEPTH-1:0] formal_words
`endif
);
    localparam int A = $clog2(DEPTH);

    if (DEPTH < 2 || (1 << A) != DEPTH) begin : gen_bad_depth
        $error("DEPTH must be a power of two of at least 2");
    end

    // One bit more than an address: full and empty differ.
    logic [A:0] written;
    logic [A:0] taken;
    (* ram_style = "distributed" *) logic [WIDTH-1:0] memory [DEPTH];

    assign s_ready = written - taken != (A + 1)'(DEPTH);
    assign m_valid = written != taken;
    assign m_data  = memory[taken[A-1:0]];

    always_ff @(posedge clk) begin
        if (s_valid && s_ready) begin
            memory[written[A-1:0]] <= s_data;
            written <= written + 1'b1;
        end
        if (m_valid && m_ready) taken <= taken + 1'b1;
        if (rst) begin
            written <= '0;
            taken   <= '0;
        end
    end
`ifdef FORMAL
    assign formal_written = written;
    assign formal_taken   = taken;
    always_comb for (int i = 0; i < DEPTH; i++) formal_words[WIDTH*i+:WIDTH] = memory[i];
`endif
endmodule
