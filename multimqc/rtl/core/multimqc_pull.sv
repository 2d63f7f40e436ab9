// Asks the store for what pulls want, and makes the header of each reply; a pull that the store leaves to the host goes there as it
// came.
//
//	 pulls ─┬─► requests ──────────────────► store
//	        ├─► notes (addresses, names) ─┐    │
//	        │                             ▼    ▼ response
//	        │                           header, bytes ─► framer
//	        │                             │ hit or not
//	        └─► whole frames ───────────► drop, or to the host
//
// The store answers in the order of the requests, so nothing is looked up.
module multimqc_pull #(
    parameter int TOPICS  = 4,
    parameter int PENDING  = 32   // pulls that wait for the store
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [TOPICS*16-1:0]                     cfg_id,
    input  logic [TOPICS*32-1:0]                     cfg_epoch,

    input  logic [511:0]                             s_tdata,
    input  logic [63:0]                              s_tkeep,
    input  logic                                     s_tlast,
    input  logic [multimqc_pkg::FRAME_USER_W-1:0]    s_tuser,
    input  logic                                     s_tvalid,
    output logic                                     s_tready,
    output logic                                     has_room,  // for a pull, if none is coming in

    output logic [multimqc_pkg::READ_REQUEST_W-1:0]  m_read_data,
    output logic                                     m_read_valid,
    input  logic                                     m_read_ready,

    input  logic [511:0]                             s_response_tdata,
    input  logic [63:0]                              s_response_tkeep,
    input  logic                                     s_response_tlast,
    input  logic [multimqc_pkg::READ_RESPONSE_W-1:0] s_response_tuser,
    input  logic                                     s_response_tvalid,
    output logic                                     s_response_tready,

    output logic [multimqc_pkg::HEADER_W-1:0]                      m_header,
    output logic [511:0]                             m_tdata,
    output logic [63:0]                              m_tkeep,
    output logic                                     m_tlast,
    output logic                                     m_tvalid,
    input  logic                                     m_tready,

    output logic [511:0]                             m_miss_tdata,
    output logic [63:0]                              m_miss_tkeep,
    output logic                                     m_miss_tlast,
    output logic [multimqc_pkg::PORT_W-1:0]          m_miss_tuser,
    output logic                                     m_miss_tvalid,
    input  logic                                     m_miss_tready,

    output logic [31:0]                              event_data,   // {kind, topic, port, bytes}
    output logic                                     event_valid,
    input  logic                                     event_ready
);
    localparam int TOPIC_W = multimqc_pkg::TOPIC_W;
    localparam int PORT_W  = multimqc_pkg::PORT_W;
    // Of a frame's first beat, all that a reply needs: up to the ports of IPv6.
    localparam int SEEN_W = 58 * 8;
    localparam int NOTE_W = SEEN_W + 64 + PORT_W + TOPIC_W + 2;

    // --- Pulls come --------------------------------------------------------------------------
    logic first;   // the next beat is the first of its frame
    logic [multimqc_pkg::TAG_W-1:0] tag;
    logic request_ready, note_ready, frame_ready, frame_has_room;
    wire  ready_at_first = request_ready && note_ready;
    wire  start = s_tvalid && first && frame_ready && ready_at_first;

    assign s_tready = frame_ready && (!first || ready_at_first);
    assign has_room = frame_has_room && ready_at_first;

    always_ff @(posedge clk) begin
        if (s_tvalid && s_tready) first <= s_tlast;
        if (start) tag <= tag + 1'b1;
        if (rst) begin
            first <= 1'b1;
            tag   <= '0;
        end
    end

    multimqc_bypass_fifo #(.WIDTH(multimqc_pkg::READ_REQUEST_W), .DEPTH(PENDING)) requests (
        .clk, .rst,
        .s_data({tag, s_tuser[multimqc_pkg::FRAME_TOPIC +: TOPIC_W],
                 s_tuser[multimqc_pkg::FRAME_OFFSET +: multimqc_pkg::OFFSET_W],
                 s_tuser[multimqc_pkg::FRAME_N +: multimqc_pkg::LENGTH_W]}),
        .s_valid(start), .s_ready(request_ready), .m_data(m_read_data), .m_valid(m_read_valid), .m_ready(m_read_ready)
    );

    logic               n_valid, n_v6, n_headed, n_pop;
    logic [SEEN_W-1:0]  n_seen;
    logic [63:0]        n_names;
    logic [PORT_W-1:0]  n_port;
    logic [TOPIC_W-1:0] n_topic;

    multimqc_fifo #(.WIDTH(NOTE_W), .DEPTH(PENDING)) notes (
        .clk, .rst,
        .s_data({s_tdata[SEEN_W-1:0], s_tuser[multimqc_pkg::FRAME_NAMES +: 64], s_tuser[multimqc_pkg::FRAME_PORT +: PORT_W],
                 s_tuser[multimqc_pkg::FRAME_TOPIC +: TOPIC_W], s_tuser[multimqc_pkg::FRAME_HEADED],
                 s_tuser[multimqc_pkg::FRAME_V6]}),
        .s_valid(start), .s_ready(note_ready),
        .m_data({n_seen, n_names, n_port, n_topic, n_headed, n_v6}), .m_valid(n_valid), .m_ready(n_pop)
    );

    // --- The store answers -------------------------------------------------------------------
    wire [multimqc_pkg::STATUS_W-1:0] status = s_response_tuser[multimqc_pkg::RESPONSE_STATUS +: multimqc_pkg::STATUS_W];
    wire [15:0] length = s_response_tuser[multimqc_pkg::RESPONSE_LENGTH +: 16];
    wire        for_host = status == multimqc_pkg::STATUS_OVERWRITTEN;
    logic       begun;   // beats of this response are out
    logic       verdict_ready;
    // Whether what goes with the first beat has its place.
    wire        may_begin = begun || (n_valid && verdict_ready && event_ready);
    wire        answer_go = s_response_tvalid && s_response_tready;
    wire        answer_first = answer_go && !begun;

    assign m_tvalid = s_response_tvalid && may_begin && !for_host;
    assign m_tdata  = s_response_tdata;
    assign m_tkeep  = s_response_tkeep;
    assign m_tlast  = s_response_tlast;
    assign s_response_tready = may_begin && (for_host || m_tready);
    assign n_pop = answer_go && s_response_tlast;

    // Both ends change places. IPv4: addresses at 26 and 30, ports at 34 and 36. IPv6: 22 and 38, 54 and 56.
    wire [255:0] addresses = n_v6 ? {n_seen[22*8 +: 128], n_seen[38*8 +: 128]}
                                  : {96'd0, n_seen[26*8 +: 32], 96'd0, n_seen[30*8 +: 32]};
    wire [31:0]  ports     = n_v6 ? {n_seen[54*8 +: 16], n_seen[56*8 +: 16]} : {n_seen[34*8 +: 16], n_seen[36*8 +: 16]};

    assign m_header = {s_response_tuser[multimqc_pkg::RESPONSE_SUM +: multimqc_pkg::SUM_W + 1], cfg_epoch[n_topic*32 +: 32], s_response_tuser[multimqc_pkg::RESPONSE_OFFSET +: 64], n_names,
                       15'd0, status == multimqc_pkg::STATUS_END, cfg_id[n_topic*16 +: 16], multimqc_pkg::KIND_REPLY,
                       ports, addresses, n_seen[0 +: 48], n_seen[48 +: 48], length, n_port, n_headed, n_v6};

    assign event_valid = s_response_tvalid && !begun && n_valid && verdict_ready && (for_host || m_tready);
    assign event_data  = {status == multimqc_pkg::STATUS_HIT ? multimqc_pkg::COUNT_HITS :
                          status == multimqc_pkg::STATUS_END ? multimqc_pkg::COUNT_MISSES : multimqc_pkg::COUNT_OVERWRITTEN,
                          n_topic, n_port, length};

    always_ff @(posedge clk) begin
        if (answer_go) begun <= !s_response_tlast;
        if (rst) begun <= 1'b0;
    end

    // --- The frames of pulls leave ---------------------------------------------------------------
    logic v_valid, v_for_host, v_pop;

    multimqc_fifo #(.WIDTH(1), .DEPTH(2 * PENDING)) verdicts (
        .clk, .rst, .s_data(for_host), .s_valid(answer_first), .s_ready(verdict_ready),
        .m_data(v_for_host), .m_valid(v_valid), .m_ready(v_pop)
    );

    logic frame_valid, event_dropped;
    wire  frame_take = v_valid && (!v_for_host || m_miss_tready);

    multimqc_frame_fifo #(.USER_W(PORT_W), .FRAMES(2 * PENDING)) frames (
        .clk, .rst, .s_tdata, .s_tkeep, .s_tlast, .s_tuser(s_tuser[multimqc_pkg::FRAME_PORT +: PORT_W]),
        .s_tvalid(s_tvalid && (!first || ready_at_first)), .s_tready(frame_ready),
        .m_tdata(m_miss_tdata), .m_tkeep(m_miss_tkeep), .m_tlast(m_miss_tlast), .m_tuser(m_miss_tuser),
        .m_tvalid(frame_valid), .m_tready(frame_take), .has_room(frame_has_room), .event_dropped
    );

    assign m_miss_tvalid = frame_valid && v_valid && v_for_host;
    assign v_pop = frame_valid && frame_take && m_miss_tlast;
endmodule
