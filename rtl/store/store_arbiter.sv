// Grants one of N requests in each clock. Request 0 goes before the others, unless one of them is in a hurry; of the others the one
// with the highest number goes first. A request that has waited for long goes before all these, the lowest number first:
//
//   request 0    after FIRST_PATIENCE grants to others since its last, and two for each beat that it has begun to read since: it is
//                quick again after a pause, and takes few beats from others that are in a hurry
//   the others   after PATIENCE grants to others
//
// The request whose turn it is blocks the others while it is not enabled.
module store_arbiter #(
    parameter int N              = 3,
    parameter int FIRST_PATIENCE = 8,
    parameter int PATIENCE       = 4
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
    , output logic [7:0] formal_owed,
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

    logic [N*W-1:0] waited;
    logic [7:0] owed;  // grants to others until request 0 is overdue
    logic [N-1:0] overdue, turn;

    // The last that holds counts.
    always_comb begin
        for (int i = 0; i < N; i++) begin
            overdue[i] = request[i] && (i == 0 ? owed == 8'd0 && !BUG_STARVE : waited[W*i+:W] == W'(PATIENCE));
        end
        turn = '0;
        for (int i = 1; i < N; i++) if (request[i]) turn = N'(1) << i;
        if (request[0]) turn = N'(1);
        for (int i = 1; i < N; i++) if (request[i] && hurry[i]) turn = N'(1) << i;
        for (int i = N - 1; i >= 0; i--) if (overdue[i]) turn = N'(1) << i;
        grant = turn & enable;
    end

    always_ff @(posedge clk) begin
        for (int i = 0; i < N; i++) begin
            if (rst || !request[i] || grant[i]) waited[W*i+:W] <= '0;
            else if (grant != '0 && waited[W*i+:W] != W'(PATIENCE)) waited[W*i+:W] <= waited[W*i+:W] + 1'b1;
        end
        owed <= (grant[0] ? 8'(FIRST_PATIENCE) : owed - 8'(grant != '0 && owed != 8'd0)) + {first_beats, 1'b0};
        if (rst) owed <= '0;
    end
`ifdef FORMAL
    assign formal_owed   = owed;
    assign formal_waited = waited;
`endif
    wire unused = &{1'b0, hurry[0]};
endmodule
