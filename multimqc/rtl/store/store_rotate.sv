// Rotates 64 bytes to the left (towards higher lanes) in two registered steps: by 0 to 7 bytes, then by a multiple of 8. Each step
// is a multiplexer of eight inputs for each bit. The value at `side_in` travels with the bytes.
module store_rotate #(
    parameter int SIDE_W = 1
) (
    input  logic              clk,
    input  logic [511:0]      in_data,
    input  logic [5:0]        in_shift,
    input  logic [SIDE_W-1:0] side_in,
    output logic [511:0]      out_data,
    output logic [5:0]        out_shift,
    output logic [SIDE_W-1:0] side_out
);
    logic [511:0] half_data;
    logic [5:0] half_shift;
    logic [SIDE_W-1:0] half_side;
    wire [1023:0] twice_in   = {in_data, in_data};
    wire [1023:0] twice_half = {half_data, half_data};

    always_ff @(posedge clk) begin
        half_data  <= twice_in[(10'd64 - {7'd0, in_shift[2:0]}) * 8 +: 512];
        half_shift <= in_shift;
        half_side  <= side_in;
        out_data   <= twice_half[(10'd64 - {4'd0, half_shift[5:3], 3'd0}) * 8 +: 512];
        out_shift  <= half_shift;
        side_out   <= half_side;
    end
endmodule
