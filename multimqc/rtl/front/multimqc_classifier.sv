// Says what a frame is for, from its fields and the NIC's settings: a push, a pull that may be answered, or a frame for the host
// and the reason. The verdict is there two clocks after the fields; a frame in each clock.
//
// The rules and their order are those of the kernel level (multimqc/bpf/packet.h), so that each level takes the same datagrams.
module multimqc_classifier #(
    parameter int TOPICS = 4
) (
    input  logic                    clk,
    input  logic                    rst,

    input  logic [TOPICS-1:0]       cfg_open,
    input  logic [TOPICS*16-1:0]    cfg_id,
    input  logic [TOPICS*16-1:0]    cfg_push_port,   // 0: none
    input  logic [TOPICS*16-1:0]    cfg_pull_port,   // 0: none
    input  logic [TOPICS*32-1:0]    cfg_epoch,
    input  logic [15:0]             cfg_header_port, // 0: none
    input  logic [15:0]             cfg_max_message,
    input  logic [15:0]             cfg_max_reply,
    input  logic [31:0]             cfg_trusted_network,  // as in a frame, the first byte lowest
    input  logic [31:0]             cfg_trusted_mask,

    input  logic                    f_valid,
    input  logic [11:0]             f_length,
    input  logic                    f_v6,
    input  logic                    f_datagram,
    input  logic                    f_more,
    input  logic [15:0]             f_ip_length,
    input  logic [31:0]             f_source,
    input  logic [63:0]             f_udp,
    input  logic [63:0]             f_word0,
    input  logic [63:0]             f_word1,
    input  logic [63:0]             f_word2,
    input  logic [63:0]             f_word3,
    input  logic [31:0]             f_udp_sum,
    input  logic [31:0]             f_ip_sum,

    output logic                                 m_valid,
    output logic [multimqc_pkg::FRAME_PORT-1:0]  m_user
);
    localparam int TOPIC_W = multimqc_pkg::TOPIC_W;

    if (TOPICS < 1 || TOPICS > (1 << TOPIC_W)) begin : gen_bad_topics
        $error("TOPICS must be 1 to 256");
    end

    localparam logic [7:0] LETTER_M = 8'h4d;
    localparam logic [7:0] LETTER_Q = 8'h51;

    wire [15:0] source_port = {f_udp[7:0], f_udp[15:8]};
    wire [15:0] port        = {f_udp[23:16], f_udp[31:24]};
    wire [15:0] udp_length  = {f_udp[39:32], f_udp[47:40]};

    // --- Clock 1: compare -------------------------------------------------------
    logic               push_hit, pull_hit, header_hit, id_hit, ours;
    logic [TOPIC_W-1:0] port_topic, id_topic;

    always_comb begin
        push_hit   = 1'b0;
        pull_hit   = 1'b0;
        id_hit     = 1'b0;
        header_hit = port != 16'd0 && port == cfg_header_port;
        // A reply to one of our ports would be a request again, for ever.
        ours       = source_port == 16'd0 || source_port == cfg_header_port;
        port_topic = '0;
        id_topic   = '0;
        for (int i = 0; i < TOPICS; i++) begin
            if (cfg_open[i]) begin
                if (port != 16'd0 && port == cfg_push_port[i*16 +: 16]) begin
                    push_hit   = 1'b1;
                    port_topic = port_topic | TOPIC_W'(i);
                end
                if (port != 16'd0 && port == cfg_pull_port[i*16 +: 16]) begin
                    pull_hit   = 1'b1;
                    port_topic = port_topic | TOPIC_W'(i);
                end
                if (f_word0[47:32] == cfg_id[i*16 +: 16]) begin
                    id_hit   = 1'b1;
                    id_topic = id_topic | TOPIC_W'(i);
                end
                if (source_port == cfg_push_port[i*16 +: 16] || source_port == cfg_pull_port[i*16 +: 16]) ours = 1'b1;
            end
        end
    end

    logic               valid1, datagram1, more1, shaped1, push_1, pull_1, header1, ours1, magic1, trusted1, v6_1, no_sum1;
    logic [TOPIC_W-1:0] port_topic1, id_topic1;
    logic [7:0]         kind1;
    logic [11:0]        length1;
    logic [15:0]        payload1;
    logic [63:0]        word0_1, word1_1, word2_1, word3_1;
    logic [17:0]        udp_sum1, ip_sum1;

    always_ff @(posedge clk) begin
        valid1      <= f_valid;
        datagram1   <= f_datagram;
        more1       <= f_more;
        v6_1        <= f_v6;
        length1     <= f_length;
        shaped1     <= udp_length >= 16'd8 && udp_length == f_ip_length &&
                       17'(f_ip_length) + (f_v6 ? 17'd54 : 17'd34) <= 17'(f_length);
        payload1    <= udp_length - 16'd8;
        push_1       <= push_hit;
        pull_1       <= pull_hit;
        header1     <= header_hit;
        ours1       <= ours;
        port_topic1 <= push_hit || pull_hit ? port_topic : '0;
        id_topic1   <= id_topic;
        magic1      <= f_word0[7:0] == LETTER_M && f_word0[15:8] == LETTER_Q && f_word0[23:16] == 8'd1 && id_hit;
        kind1       <= f_word0[31:24];
        trusted1    <= !f_v6 && (f_source & cfg_trusted_mask) == cfg_trusted_network;
        no_sum1     <= f_udp[63:48] == 16'd0;
        word0_1     <= f_word0;
        word1_1     <= f_word1;
        word2_1     <= f_word2;
        word3_1     <= f_word3;
        // The protocol number and the length belong to the pseudo header.
        udp_sum1    <= 18'(f_udp_sum[15:0]) + 18'(f_udp_sum[31:16]) + 18'h01100 + 18'(f_udp[47:32]);
        ip_sum1     <= 18'(f_ip_sum[15:0]) + 18'(f_ip_sum[31:16]);
        if (rst) valid1 <= 1'b0;
    end

    // --- Clock 2: the verdict -----------------------------------------------------
    // A sum that is right is all ones; at most two carries are left of three terms.
    function automatic logic is_right(input logic [17:0] sum);
        is_right = 17'(sum[15:0]) + 17'(sum[17:16]) == 17'h0ffff;
    endfunction

    wire sums_right = is_right(udp_sum1) || (no_sum1 && !v6_1);
    wire ip_right   = v6_1 || is_right(ip_sum1);

    wire               headed = header1;
    wire [TOPIC_W-1:0] topic  = headed ? (magic1 && payload1 >= 16'd32 ? id_topic1 : '0) : port_topic1;
    wire               headed_well = payload1 >= 16'd32 && magic1;
    wire [15:0]        body = payload1 - 16'd32;
    wire               is_push = headed ? kind1 == multimqc_pkg::KIND_PUSH : push_1;
    wire               is_pull = headed ? kind1 == multimqc_pkg::KIND_PULL : pull_1;
    wire [63:0]        offset  = headed ? word2_1 : word0_1;
    wire [63:0]        asked   = headed ? {32'd0, word3_1[31:0]} : word1_1;
    wire [15:0]        n_push  = headed ? body : payload1;
    wire [31:0]        epoch   = word3_1[63:32];

    logic        format_good, epoch_good;
    logic [15:0] room, limit, n_pull;

    always_comb begin
        if (headed) format_good = headed_well && ((is_push && body != 16'd0 && word3_1[31:0] == {16'd0, body}) ||
                                                  (is_pull && !word2_1[63]));
        else        format_good = is_push || (payload1 >= 16'd16 && !word0_1[63]);
        room = trusted1 || payload1 > cfg_max_reply ? cfg_max_reply : payload1;
        limit = !headed ? room : room > 16'd32 ? room - 16'd32 : 16'd0;
        n_pull = asked < {48'd0, limit} ? asked[15:0] : limit;
        epoch_good = !headed || epoch == 32'd0 || epoch == cfg_epoch[topic*32 +: 32];
    end

    logic [multimqc_pkg::CLASS_W-1:0] class_now;
    logic [multimqc_pkg::COUNT_W-1:0] count_now;

    always_comb begin
        class_now = multimqc_pkg::CLASS_PASS;
        count_now = multimqc_pkg::COUNT_PASSED;
        if (datagram1 && (push_1 || pull_1 || header1)) begin
            if (more1) count_now = multimqc_pkg::COUNT_FRAGMENTS;
            else if (!shaped1 || !format_good) count_now = multimqc_pkg::COUNT_MALFORMED;
            else if (is_push && n_push == 16'd0) count_now = multimqc_pkg::COUNT_PASSED;
            else if (is_push && n_push > cfg_max_message) count_now = multimqc_pkg::COUNT_OVERSIZE;
            else if (!ip_right || !sums_right) count_now = multimqc_pkg::COUNT_CORRUPT;
            else if (is_push) class_now = multimqc_pkg::CLASS_PUSH;
            else if (n_pull == 16'd0 || ours1) count_now = multimqc_pkg::COUNT_REFUSED;
            else if (epoch_good) class_now = multimqc_pkg::CLASS_PULL;
        end
    end

    always_ff @(posedge clk) begin
        m_valid <= valid1;
        m_user[multimqc_pkg::FRAME_CLASS +: multimqc_pkg::CLASS_W] <= class_now;
        m_user[multimqc_pkg::FRAME_COUNT +: multimqc_pkg::COUNT_W] <= count_now;
        m_user[multimqc_pkg::FRAME_TOPIC +: TOPIC_W] <= datagram1 && (push_1 || pull_1 || header1) ? topic : '0;
        m_user[multimqc_pkg::FRAME_V6] <= v6_1;
        m_user[multimqc_pkg::FRAME_HEADED] <= headed;
        m_user[multimqc_pkg::FRAME_LENGTH +: multimqc_pkg::FRAME_LENGTH_W] <= length1;
        m_user[multimqc_pkg::FRAME_N +: multimqc_pkg::LENGTH_W] <= is_push ? n_push : n_pull;
        m_user[multimqc_pkg::FRAME_OFFSET +: multimqc_pkg::OFFSET_W] <= offset;
        m_user[multimqc_pkg::FRAME_NAMES +: 64] <= word1_1;
        if (rst) m_valid <= 1'b0;
    end
endmodule
