// A memory with one port to write and one to read; the word is there one clock after its address.
module multimqc_ram #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16,
    parameter int A     = $clog2(DEPTH)
) (
    input  logic             clk,
    input  logic             write,
    input  logic [A-1:0]     write_address,
    input  logic [WIDTH-1:0] write_data,
    input  logic             read,
    input  logic [A-1:0]     read_address,
    output logic [WIDTH-1:0] read_data
);
    (* ram_style = "block" *) logic [WIDTH-1:0] memory [DEPTH];

    always_ff @(posedge clk) begin
        if (write) memory[write_address] <= write_data;
        if (read) read_data <= memory[read_address];
    end
endmodule
