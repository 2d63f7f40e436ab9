// Grants one of N requests in each clock. Request 0 goes before the others, unless one of them is in a hurry; of the others the one
// with the highest number goes first. A request that has waited for long goes before all these, the lowest number of the others first,
// then request 0:
//
//   request 0    after SHARE clocks since its last grant, and as many for each beat that it has begun to read since: under pressure it
//                has one of so many clocks, and is quick again after a pause
//   the others   after PATIENCE grants to others
//
// `hurry` holds request 0 up even while the request that is in a hurry is not there for some clocks, between two of its ranges. The
// request whose turn it is blocks the others while it is not enabled.
module store_arbiter #(
    parameter int N        = 3,
    parameter int SHARE    = 48,
    parameter int PATIENCE = 4
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [N-1:0] request,
    input  logic [6:0]   first_beats,  // in the clock in which request 0, granted before, begins to read them
    input  logic [N-1:0] hurry,
    input  logic [N-1:0] enable,
    output logic [N-1:0] grant
`ifdef FORMAL
    // For the proof, which cannot look inside.
    , output logic [12:0] formal_owed,
    output logic [N*$clog2(PATIENCE+1)-1:0] formal_waited
`endif
);
    localparam int W = $clog2(PATIENCE + 1);
`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_STARVE;
    initial begin
        BUG_STARVE = $test$plusargs("BUG_STARVE") != 0;
    end
`else
    localparam logic BUG_STARVE = 1'b0;
`endif

    if (SHARE < 1 || SHARE > 63) begin : g_share
        $error("store_arbiter: SHARE is not 1 to 63");
    end

    logic [N*W-1:0] waited;
    logic [12:0] owed;  // clocks until request 0 is overdue
    logic [N-1:0] overdue, turn;
    wire pressed = hurry[N-1:1] != '0;

    // The last that holds counts.
    always_comb begin
        overdue[0] = request[0] && owed == '0 && first_beats == '0 && !BUG_STARVE;
        for (int i = 1; i < N; i++) overdue[i] = request[i] && waited[W*i+:W] == W'(PATIENCE);
        turn = '0;
        for (int i = 1; i < N; i++) if (request[i]) turn = N'(1) << i;
        if (request[0] && !pressed) turn = N'(1);
        for (int i = 1; i < N; i++) if (request[i] && hurry[i]) turn = N'(1) << i;
        if (overdue[0]) turn = N'(1);
        for (int i = N - 1; i >= 1; i--) if (overdue[i]) turn = N'(1) << i;
        grant = turn & enable;
    end

    always_ff @(posedge clk) begin
        for (int i = 0; i < N; i++) begin
            if (rst || !request[i] || grant[i]) waited[W*i+:W] <= '0;
            else if (grant != '0 && waited[W*i+:W] != W'(PATIENCE)) waited[W*i+:W] <= waited[W*i+:W] + 1'b1;
        end
        owed <= (grant[0] ? 13'(SHARE) : owed - 13'(owed != '0)) + 13'(first_beats) * 13'(SHARE);
        if (rst) owed <= '0;
    end
`ifdef FORMAL
    assign formal_owed   = owed;
    assign formal_waited = waited;
`endif
    wire unused = &{1'b0, hurry[0]};
endmodule
