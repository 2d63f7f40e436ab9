// Properties of multimqc_fifo: what goes in comes out, in its order; nothing is lost where it is full, and a waiting word stays.
module fifo_formal (
    input logic       clk,
    input logic [3:0] s_data,
    input logic       s_valid,
    input logic       m_ready
);
    logic rst = 1'b1;
    always_ff @(posedge clk) rst <= 1'b0;

    logic s_ready, m_valid;
    logic [3:0] m_data;
    multimqc_fifo #(
        .WIDTH(4),
        .DEPTH(4)
    ) fifo (
        .clk,
        .rst,
        .s_data,
        .s_valid,
        .s_ready,
        .m_data,
        .m_valid,
        .m_ready
    );

    // The word with the number that the solver chooses is followed from one end to the other.
    (* anyconst *) logic [4:0] chosen;
    logic [4:0] written = '0, taken = '0;
    logic [3:0] word;
    logic stalled = 1'b0;
    logic [3:0] stalled_data;
    always_ff @(posedge clk) begin
        if (!rst) begin
            if (s_valid && s_ready) written <= written + 5'd1;
            if (m_valid && m_ready) taken <= taken + 5'd1;
            if (s_valid && s_ready && written == chosen) word <= s_data;
            assume (written != 5'd31);
            if (m_valid && taken == chosen) assert (m_data == word);
            assert (written - taken <= 5'd4);
            assert (m_valid == (written != taken));
            assert (s_ready == (written - taken != 5'd4));
            stalled      <= m_valid && !m_ready;
            stalled_data <= m_data;
            if (stalled) assert (m_valid && m_data == stalled_data);
            cover (!s_ready);
        end
    end
endmodule
