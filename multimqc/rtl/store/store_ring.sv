// The rings of all topics: 64 byte lanes, each with an address of its own, so that 64 bytes from any offset on are written, and read,
// in one clock.
//
//   offset 70, 64 bytes:   lane    0  1 ... 5 | 6  7 ... 63
//                          row n   .  .     . | 0  1     57     first bytes: lanes from 70 % 64 on
//                          row n+1 58 59   63 |                 the rest: lanes below, one row later
//
// The byte of lane i is at `next` where bit i of `*_later` is set, at `row` elsewhere.
//
// A read of a byte that is written in the same clock gives anything: block RAM of some families does not say more. In simulation it
// gives wrong bits, so that a reader whose bytes are not kept apart from the writer is found.
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
        wire [ROW_W-1:0] write_at = wr_later[i] ? wr_next : wr_row;
        wire [ROW_W-1:0] read_at  = rd_later[i] ? rd_next : rd_row;
        logic [7:0] read_byte;

        multimqc_ram #(
            .WIDTH(8),
            .DEPTH(ROWS),
            .A    (ROW_W)
        ) lane (
            .clk,
            .write        (wr_enable[i]),
            .write_address(write_at),
            .write_data   (wr_data[8*i+:8]),
            .read         (rd_enable),
            .read_address (read_at),
            .read_data    (read_byte)
        );
`ifdef VERILATOR
        logic collided;
        always_ff @(posedge clk) if (rd_enable) collided <= wr_enable[i] && write_at == read_at;
        assign rd_data[8*i+:8] = read_byte ^ {8{collided}};
`else
        assign rd_data[8*i+:8] = read_byte;
`endif
    end
endmodule
