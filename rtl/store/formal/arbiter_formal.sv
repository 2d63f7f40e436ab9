// Properties of store_arbiter: at most one grant, only to a request, one whenever there is a request, and none waits for ever.
module arbiter_formal (
    input logic       clk,
    input logic [2:0] request,
    input logic       enable
);
    localparam int PATIENCE = 4;
    logic rst = 1'b1;
    always_ff @(posedge clk) rst <= 1'b0;

    logic [2:0] grant;
    store_arbiter #(
        .N       (3),
        .PATIENCE(PATIENCE)
    ) arbiter (
        .clk,
        .rst,
        .request,
        .enable,
        .grant
    );

    // A request stays until it is granted.
    logic [2:0] waits = '0;
    always_ff @(posedge clk) waits <= rst ? '0 : request & ~grant;
    always_comb assume ((waits & ~request) == '0);

    (* anyconst *) logic [1:0] chosen;
    always_comb assume (chosen < 2'd3);
    logic [7:0] others = '0;
    always_ff @(posedge clk) begin
        if (rst || !request[chosen] || grant[chosen]) others <= '0;
        else if (grant != '0) others <= others + 8'd1;
    end
    always_ff @(posedge clk) begin
        if (!rst) begin
            assert ((grant & ~request) == '0);
            assert ((grant & (grant - 3'd1)) == '0);
            assert ((grant != '0) == (enable && request != '0));
            assert (others <= 8'd6);
            cover (others == 8'd5);
        end
    end
endmodule
