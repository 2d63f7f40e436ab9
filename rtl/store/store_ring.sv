// The rings of all topics: 64 byte lanes, each with an address of its own, so that 64 bytes from any offset on are written, and read,
// in one clock.
//
//   offset 70, 64 bytes:   lane    0  1 ... 5 | 6  7 ... 63
//                          row n   .  .     . | 0  1     57     first bytes: lanes from 70 % 64 on
//                          row n+1 58 59   63 |                 the rest: lanes below, one row later
//
// The byte of lane i is at `next` where bit i of `*_later` is set, at `row` elsewhere.
module store_ring #(
    parameter int ROWS  = 2048,
    parameter int ROW_W = 11
) (
    input  logic             clk,
    input  logic [63:0]      wr_enable,
    input  logic [63:0]      wr_later,
    input  logic [ROW_W-1:0] wr_row,
    input  logic [ROW_W-1:0] wr_next,
    input  logic [511:0]     wr_data,
    input  logic             rd_enable,
    input  logic [63:0]      rd_later,
    input  logic [ROW_W-1:0] rd_row,
    input  logic [ROW_W-1:0] rd_next,
    output logic [511:0]     rd_data
);
    for (genvar i = 0; i < 64; i++) begin : g_lane
        multimqc_ram #(
            .WIDTH(8),
            .DEPTH(ROWS),
            .A    (ROW_W)
        ) lane (
            .clk,
            .write        (wr_enable[i]),
            .write_address(wr_later[i] ? wr_next : wr_row),
            .write_data   (wr_data[8*i+:8]),
            .read         (rd_enable),
            .read_address (rd_later[i] ? rd_next : rd_row),
            .read_data    (rd_data[8*i+:8])
        );
    end
endmodule
