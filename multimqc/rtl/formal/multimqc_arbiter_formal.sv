// Properties of multimqc_arbiter: a beat that waits does not change, a frame is never mixed with another, each beat that is taken comes
// out in the next clock, and one input at most is taken from.
module multimqc_arbiter_formal (
    input logic       clk,
    input logic       rst,
    input logic [7:0] s_data,
    input logic [3:0] s_last,
    input logic [3:0] s_valid,
    input logic       m_ready
);
    logic begun = 1'b0;
    always_ff @(posedge clk) begun <= 1'b1;
    always_comb assume (begun || rst);

    logic [3:0] s_ready;
    logic [1:0] m_data, m_index, in_current;
    logic m_last, m_valid, in_midway;
    multimqc_arbiter #(
        .PORTS(4),
        .WIDTH(2)
    ) arbiter (
        .clk,
        .rst,
        .s_data,
        .s_last,
        .s_valid,
        .s_ready,
        .m_data,
        .m_last,
        .m_index,
        .m_valid,
        .m_ready,
        .formal_midway (in_midway),
        .formal_current(in_current)
    );

    wire [3:0] taken = s_valid & s_ready;
    logic waits = 1'b0, midway = 1'b0, took = 1'b0, out_midway = 1'b0;
    logic [4:0] waiting = '0, expected = '0;
    logic [1:0] owner = '0, out_owner = '0;
    always_ff @(posedge clk) begin
        waits   <= m_valid && !m_ready && !rst;
        waiting <= {m_data, m_last, m_index};
        took    <= taken != 4'd0 && !rst;
        for (int i = 0; i < 4; i++) begin
            if (taken[i]) begin
                expected <= {s_data[2*i+:2], s_last[i], 2'(i)};
                owner    <= 2'(i);
                midway   <= !s_last[i];
            end
        end
        if (m_valid && m_ready) begin
            out_midway <= !m_last;
            out_owner  <= m_index;
        end
        if (rst) begin
            midway     <= 1'b0;
            out_midway <= 1'b0;
        end
    end
    always_comb begin
        if (begun && !rst) begin
            // The properties rest on this: one beat at most is between both ends.
            assert (midway == in_midway && (!midway || owner == in_current));
            assert (!m_valid || (midway == !m_last && owner == m_index));
            assert (m_valid || (midway == out_midway && (!midway || owner == out_owner)));
            // The properties.
            assert ((taken & (taken - 4'd1)) == 4'd0);
            assert (!waits || (m_valid && {m_data, m_last, m_index} == waiting));
            assert (!took || (m_valid && {m_data, m_last, m_index} == expected));
            // Frames whole: at the inputs, and at the output.
            assert (!midway || taken == 4'd0 || taken == 4'd1 << owner);
            assert (!(m_valid && out_midway) || m_index == out_owner);
        end
    end
endmodule
