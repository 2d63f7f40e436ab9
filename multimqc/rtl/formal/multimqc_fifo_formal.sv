// Properties of multimqc_fifo: what goes in comes out, in its order; nothing is lost where it is full; a waiting word stays.
module multimqc_fifo_formal #(
    parameter int DEPTH = 4
) (
    input logic       clk,
    input logic       rst,
    input logic [1:0] s_data,
    input logic       s_valid,
    input logic       m_ready,
    input logic       follow
);
    localparam int A = $clog2(DEPTH);
    logic begun = 1'b0;
    always_ff @(posedge clk) begun <= 1'b1;
    always_comb assume (begun || rst);

    logic s_ready, m_valid;
    logic [1:0] m_data;
    logic [A:0] written, taken;
    logic [2*DEPTH-1:0] words;
    multimqc_fifo #(
        .WIDTH(2),
        .DEPTH(DEPTH)
    ) fifo (
        .clk,
        .rst,
        .s_data,
        .s_valid,
        .s_ready,
        .m_data,
        .m_valid,
        .m_ready,
        .formal_written(written),
        .formal_taken  (taken),
        .formal_words  (words)
    );

    // A word that is followed from one end to the other: any, since `follow` is free. `before` words leave before it.
    logic followed = 1'b0, stalled = 1'b0;
    logic [A:0] before = '0, inside = '0;
    logic [1:0] word = '0, stalled_word = '0;
    wire comes = s_valid && s_ready;
    wire goes = m_valid && m_ready;
    wire [A-1:0] place = A'(taken + before);
    always_ff @(posedge clk) begin
        inside       <= rst ? '0 : inside + (A + 1)'(comes) - (A + 1)'(goes);
        stalled      <= m_valid && !m_ready && !rst;
        stalled_word <= m_data;
        if (rst) followed <= 1'b0;
        else if (followed) begin
            before <= before - (A + 1)'(goes);
            if (goes && before == '0) followed <= 1'b0;
        end else if (comes && follow) begin
            followed <= 1'b1;
            before   <= inside - (A + 1)'(goes);
            word     <= s_data;
        end
    end
    always_comb begin
        if (begun && !rst) begin
            // The properties rest on this: where the words are.
            assert (written - taken == inside);
            assert (inside <= (A + 1)'(DEPTH));
            assert (!followed || (before < inside && words[2*place+:2] == word));
            // The properties.
            assert (!(followed && goes && before == '0) || m_data == word);
            assert (m_valid == (inside != '0));
            assert (s_ready == (inside != (A + 1)'(DEPTH)));
            assert (!stalled || (m_valid && m_data == stalled_word));
        end
    end
endmodule
