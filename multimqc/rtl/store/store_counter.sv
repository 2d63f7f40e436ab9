// A counter of each topic, in distributed RAM. `live` says which topics have counted since the reset.
module store_counter #(
    parameter int TOPICS = 8
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        add_valid,
    input  logic [7:0]  add_topic,
    input  logic [63:0] add_amount,
    input  logic [7:0]  read_topic,
    output logic [63:0] read_value
);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    (* ram_style = "distributed" *) logic [63:0] memory [1 << TW];
    logic [TOPICS-1:0] live;
    wire [TW-1:0] topic = add_topic[TW-1:0];
    wire [TW-1:0] shown = read_topic[TW-1:0];

    always_ff @(posedge clk) begin
        if (add_valid) begin
            memory[topic] <= (live[topic] ? memory[topic] : 64'd0) + add_amount;
            live[topic]   <= 1'b1;
        end
        read_value <= live[shown] ? memory[shown] : 64'd0;
        if (rst) live <= '0;
    end
    if (TW < 8) begin : g_rest
        wire unused = &{1'b0, add_topic[7:TW], read_topic[7:TW]};
    end
endmodule
