// Sends each frame where it belongs: a push to be stored, a pull to be answered, any other to the host. Says what is to be counted.
//
// Pulls never hold up pushes: one that comes while as many as can wait are waiting goes to the host.
module multimqc_split (
    input  logic                                  clk,
    input  logic                                  rst,
    input  logic                                  cfg_serve,  // 0: all frames go to the host
    input  logic                                  counters_ready,
    input  logic [511:0]                          s_tdata,
    input  logic                                  s_tlast,
    input  logic [multimqc_pkg::FRAME_USER_W-1:0] s_tuser,
    input  logic                                  s_tvalid,
    output logic                                  s_tready,

    // The same beats for all three.
    output logic [511:0]                          m_tdata,
    output logic [63:0]                           m_tkeep,
    output logic                                  m_tlast,
    output logic [multimqc_pkg::FRAME_USER_W-1:0] m_tuser,
    output logic                                  m_push_tvalid,
    input  logic                                  m_push_tready,
    output logic                                  m_pull_tvalid,
    input  logic                                  m_pull_tready,
    input  logic                                  pull_has_room,
    output logic                                  m_pass_tvalid,
    input  logic                                  m_pass_tready,

    // {kind, topic, port, bytes}; pulls and pushes are counted when their outcome is known.
    output logic                                  event_valid,
    output logic [31:0]                           event_data
);
    wire [multimqc_pkg::CLASS_W-1:0] frame_class = s_tuser[multimqc_pkg::FRAME_CLASS +: multimqc_pkg::CLASS_W];
    wire is_push = cfg_serve && frame_class == multimqc_pkg::CLASS_PUSH;
    wire is_pull = cfg_serve && frame_class == multimqc_pkg::CLASS_PULL;
    wire [5:0] last_bytes = s_tuser[multimqc_pkg::FRAME_LENGTH +: 6];

    logic first;     // the next beat is the first of its frame
    logic serve_push, serve_pull;  // of the frame that has begun: the setting may change inside of it
    wire  to_push = first ? is_push : serve_push;
    wire  to_pull = first ? is_pull && pull_has_room : serve_pull;
    wire  go = s_tvalid && counters_ready;

    assign m_tdata = s_tdata;
    assign m_tlast = s_tlast;
    assign m_tuser = s_tuser;
    assign m_tkeep = multimqc_pkg::keep_of(s_tlast && last_bytes != 6'd0 ? {1'b0, last_bytes} : 7'd64);
    assign m_push_tvalid = go && to_push;
    assign m_pull_tvalid = go && to_pull;
    assign m_pass_tvalid = go && !to_push && !to_pull;
    assign s_tready = counters_ready && (to_push ? m_push_tready : to_pull ? m_pull_tready : m_pass_tready);

    always_ff @(posedge clk) begin
        event_valid <= s_tvalid && s_tready && first && !to_pull && !to_push;
        event_data  <= {is_pull ? multimqc_pkg::COUNT_BUSY :
                        frame_class != multimqc_pkg::CLASS_PASS ? multimqc_pkg::COUNT_PASSED :
                        s_tuser[multimqc_pkg::FRAME_COUNT +: multimqc_pkg::COUNT_W],
                        s_tuser[multimqc_pkg::FRAME_TOPIC +: multimqc_pkg::TOPIC_W],
                        s_tuser[multimqc_pkg::FRAME_PORT +: multimqc_pkg::PORT_W],
                        16'd0};
        if (s_tvalid && s_tready) begin
            first      <= s_tlast;
            serve_push <= to_push;
            serve_pull <= to_pull;
        end
        if (rst) begin
            event_valid <= 1'b0;
            first       <= 1'b1;
        end
    end
endmodule
