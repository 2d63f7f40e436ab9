// Grants one of N requests in each clock. The request with the highest number wins, unless a lower one has waited for PATIENCE
// clocks with a grant: then the lowest of these wins. So a request waits for at most N * (PATIENCE + 1) grants.
module store_arbiter #(
    parameter int N        = 3,
    parameter int PATIENCE = 32
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [N-1:0] request,
    input  logic         enable,
    output logic [N-1:0] grant
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
    logic [N-1:0] urgent;

    always_comb begin
        for (int i = 0; i < N; i++) urgent[i] = request[i] && waited[W*i+:W] == W'(PATIENCE) && !BUG_STARVE;
        grant = '0;
        for (int i = 0; i < N; i++) if (enable && request[i]) grant = N'(1) << i;
        for (int i = N - 1; i >= 0; i--) if (enable && urgent[i]) grant = N'(1) << i;
    end

    always_ff @(posedge clk) begin
        for (int i = 0; i < N; i++) begin
            if (rst || !request[i] || grant[i]) waited[W*i+:W] <= '0;
            else if (enable && waited[W*i+:W] != W'(PATIENCE)) waited[W*i+:W] <= waited[W*i+:W] + 1'b1;
        end
    end
endmodule
