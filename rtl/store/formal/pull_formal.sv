// Properties of store_pull: a response that waits does not change, there is one response for each request, in their order, and no
// decision is lost.
module pull_formal (
    input logic         clk,
    input logic [1:0]   cfg_levels,
    input logic [95:0]  s_read_data,
    input logic         s_read_valid,
    input logic         job_ready,
    input logic         decide,
    input logic         decided_hit,
    input logic         decided_end,
    input logic [15:0]  decided_length,
    input logic         s_valid,
    input logic         s_last,
    input logic         level2_ready,
    input logic         s_level2_tlast,
    input logic         s_level2_tvalid,
    input logic         m_response_tready
);
    localparam int PULLS = 4;
    logic rst = 1'b1;
    always_ff @(posedge clk) rst <= 1'b0;

    logic s_read_ready, job_valid, s_ready, level2_valid, s_level2_tready, m_response_tlast, m_response_tvalid;
    logic [96:0] job_data, level2_data;
    logic [511:0] m_response_tdata;
    logic [63:0] m_response_tkeep;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] m_response_tuser;

    // Requests that store_read has taken, and has not decided on.
    logic [3:0] undecided = '0;
    logic [7:0] begun = '0, decisions = '0, ended = '0;
    wire decided = decide && undecided != '0;
    wire begins = job_valid && job_ready;
    wire [7:0] tag_now = s_read_data[multimqc_pkg::READ_TAG+:8];

    // Requests are numbered by their tags, and decided in their order.
    always_comb assume (!s_read_valid || tag_now == begun);

    store_pull #(
        .LEVEL2(1),
        .PULLS (PULLS)
    ) pull (
        .clk,
        .rst,
        .cfg_levels,
        .s_read_data,
        .s_read_valid,
        .s_read_ready,
        .job_valid,
        .job_ready,
        .job_data,
        .decided,
        .decided_hit      (decided_hit && !decided_end),
        .decided_end,
        .decided_miss     (1'b0),
        .decided_tag      (decisions),
        .decided_topic    (8'd0),
        .decided_offset   (64'd0),
        .decided_length,
        .decided_committed(64'd0),
        .s_valid,
        .s_ready,
        .s_data           ({s_last, 512'd0}),
        .level2_valid,
        .level2_data,
        .level2_ready,
        .s_level2_tdata   (512'd0),
        .s_level2_tkeep   (64'd0),
        .s_level2_tlast,
        .s_level2_tuser   ({ended, 82'd0}),
        .s_level2_tvalid,
        .s_level2_tready,
        .m_response_tdata,
        .m_response_tkeep,
        .m_response_tlast,
        .m_response_tuser,
        .m_response_tvalid,
        .m_response_tready
    );

    // The streams into the module keep the rules of AXI-Stream.
    logic held = 1'b0, held_last, held2 = 1'b0, held2_last, stalled = 1'b0, stalled_last;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] stalled_user;
    logic [63:0] stalled_keep;
    always_comb begin
        if (held) assume (s_valid && s_last == held_last);
        if (held2) assume (s_level2_tvalid && s_level2_tlast == held2_last);
        assume (!rst || !s_read_valid);
    end
    always_ff @(posedge clk) begin
        held         <= !rst && s_valid && !s_ready;
        held_last    <= s_last;
        held2        <= !rst && s_level2_tvalid && !s_level2_tready;
        held2_last   <= s_level2_tlast;
        stalled      <= !rst && m_response_tvalid && !m_response_tready;
        stalled_last <= m_response_tlast;
        stalled_user <= m_response_tuser;
        stalled_keep <= m_response_tkeep;
        if (!rst) begin
            undecided <= undecided + 4'(begins) - 4'(decided);
            begun     <= begun + 8'(begins);
            decisions <= decisions + 8'(decided);
            if (m_response_tvalid && m_response_tready && m_response_tlast) ended <= ended + 8'd1;
            if (stalled) begin
                assert (m_response_tvalid && m_response_tlast == stalled_last);
                assert (m_response_tuser == stalled_user && m_response_tkeep == stalled_keep);
            end
            if (m_response_tvalid) assert (m_response_tuser[multimqc_pkg::RESPONSE_TAG+:8] == ended);
            assert (begun - ended <= 8'(PULLS));
            assert (decisions - ended <= 8'(PULLS));
            assert (!m_response_tvalid || decisions != ended);
            cover (begun - ended == 8'(PULLS) && m_response_tvalid);
        end
    end
endmodule
