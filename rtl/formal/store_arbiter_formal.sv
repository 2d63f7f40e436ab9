// Properties of store_arbiter: at most one grant, only to a request that is enabled, one whenever all are enabled and there is a request;
// request 0 goes first where no other is in a hurry or overdue; and none waits for ever.
module store_arbiter_formal (
    input logic       clk,
    input logic       rst,
    input logic [2:0] request,
    input logic [1:0] beats,
    input logic [2:0] hurry,
    input logic [2:0] enable
);
    localparam int FIRST_PATIENCE = 4;
    localparam int PATIENCE = 2;

    logic [2:0] grant;
    logic begun = 1'b0;
    always_ff @(posedge clk) begun <= 1'b1;
    logic granted = 1'b0;
    always_ff @(posedge clk) granted <= grant[0];
    always_comb assume ((begun || rst) && (granted || beats == 2'd0));

    logic [7:0] owed;
    logic [5:0] waited;
    store_arbiter #(
        .N             (3),
        .FIRST_PATIENCE(FIRST_PATIENCE),
        .PATIENCE      (PATIENCE)
    ) arbiter (
        .clk,
        .rst,
        .request,
        .first_beats({5'd0, beats}),
        .hurry,
        .enable,
        .grant,
        .formal_owed  (owed),
        .formal_waited(waited)
    );

    // Request 0, and each of the others: how many grants others had while it waited.
    logic [7:0] before0 = '0, before1 = '0, before2 = '0;
    always_ff @(posedge clk) begin
        before0 <= rst || !request[0] || grant[0] ? 8'd0 : before0 + 8'(grant != 3'd0);
        before1 <= rst || !request[1] || grant[1] ? 8'd0 : before1 + 8'(grant != 3'd0);
        before2 <= rst || !request[2] || grant[2] ? 8'd0 : before2 + 8'(grant != 3'd0);
    end
    always_comb begin
        if (!rst && begun) begin
            assert ((grant & ~(request & enable)) == 3'd0);
            assert ((grant & (grant - 3'd1)) == 3'd0);
            assert (enable != 3'd7 || (grant != 3'd0) == (request != 3'd0));
            // Request 0 goes first, where nobody is overdue or in a hurry.
            if (request[0] && enable[0] && ({waited[5:4] == 2'(PATIENCE), waited[3:2] == 2'(PATIENCE)} & request[2:1]) == 2'd0
                && (hurry[2:1] & request[2:1]) == 2'd0) begin
                assert (grant == 3'd1);
            end
            // The bounds rest on this: a grant to another request that is overdue makes that request wait again.
            assert (waited[3:2] <= 2'(PATIENCE) && waited[5:4] <= 2'(PATIENCE));
            assert (9'(before0) + 9'(owed) <= 9'(FIRST_PATIENCE + 12));
            assert (!granted || (before0 == 8'd0 && owed <= 8'(FIRST_PATIENCE + 6)));
            assert (before1 <= 8'(waited[3:2]) || (waited[3:2] == 2'(PATIENCE) && before1 <= 8'(PATIENCE) + 8'(owed != 8'd0)));
            assert (before2 <= 8'(waited[5:4]) || (waited[5:4] == 2'(PATIENCE)
                && (before2 <= 8'(PATIENCE) || (before2 == 8'(PATIENCE + 1) && (owed >= 8'd4 || waited[3:2] == 2'd0))
                    || (before2 == 8'(PATIENCE + 2) && owed >= 8'd3 && waited[3:2] <= 2'd1))));
            // The bounds.
            assert (before0 <= 8'(FIRST_PATIENCE + 12));
            assert (before1 <= 8'(PATIENCE + 1));
            assert (before2 <= 8'(PATIENCE + 2));
        end
    end
endmodule
