// Properties of store_arbiter: at most one grant, only to a request that is enabled, one whenever all are enabled and there is a request
// that is not held up; request 0 goes first where no other is in a hurry or overdue; and none waits for ever.
module store_arbiter_formal (
    input logic       clk,
    input logic       rst,
    input logic [2:0] request,
    input logic [1:0] beats,
    input logic [2:0] hurry,
    input logic [2:0] enable
);
    localparam int SHARE = 2;
    localparam int PATIENCE = 2;

    logic [2:0] grant;
    logic begun = 1'b0;
    always_ff @(posedge clk) begun <= 1'b1;
    logic granted = 1'b0;
    always_ff @(posedge clk) granted <= grant[0];
    always_comb assume ((begun || rst) && (granted || beats == 2'd0));

    logic [12:0] owed;
    logic [5:0] waited;
    store_arbiter #(
        .N       (3),
        .SHARE   (SHARE),
        .PATIENCE(PATIENCE)
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
    // Others that are overdue, or will be by the turns of these.
    localparam int MOST = 7 * SHARE;  // grants and clocks for two pulls, the second one of three beats
    wire [1:0] overdue = {waited[5:4] == 2'(PATIENCE), waited[3:2] == 2'(PATIENCE)} & request[2:1];
    logic [1:0] extra;
    always_comb begin
        case ({waited[3:2], waited[5:4]})
            {2'd2, 2'd2}, {2'd2, 2'd1}, {2'd1, 2'd2}: extra = 2'd2;
            {2'd2, 2'd0}, {2'd0, 2'd2}: extra = 2'd1;
            default: extra = 2'd0;
        endcase
    end
    always_comb begin
        if (!rst && begun) begin
            assert ((grant & ~(request & enable)) == 3'd0);
            assert ((grant & (grant - 3'd1)) == 3'd0);
            assert (enable != 3'd7
                || (grant != 3'd0) == (request[2:1] != 2'd0 || (request[0] && (hurry[2:1] == 2'd0 || (owed == 13'd0 && beats == 2'd0)))));
            // Request 0 goes first, where no other is overdue or in a hurry; held up by a hurry, it does not go until it is overdue.
            if (request[0] && enable[0] && overdue == 2'd0 && hurry[2:1] == 2'd0) assert (grant == 3'd1);
            if (hurry[2:1] != 2'd0 && owed != 13'd0) assert (!grant[0]);
            // What the bounds rest on: those that are overdue have their turn once before request 0 has.
            assert (waited[3:2] <= 2'(PATIENCE) && waited[5:4] <= 2'(PATIENCE));
            assert (owed == 13'd0 ? 14'(before0) + 14'(extra) <= 14'(MOST + 2) : 14'(before0) + 14'(owed) <= 14'(MOST));
            assert (!granted || (before0 == 8'd0 && owed <= 13'(4 * SHARE)));
            assert (before1 <= 8'(waited[3:2]));
            assert (before2 <= 8'(waited[5:4])
                || (waited[5:4] == 2'(PATIENCE) && waited[3:2] == 2'd0 && before2 == 8'(PATIENCE + 1)));
            // The bounds.
            assert (before0 <= 8'(MOST + 2));
            assert (before1 <= 8'(PATIENCE));
            assert (before2 <= 8'(PATIENCE + 1));
        end
    end
endmodule
