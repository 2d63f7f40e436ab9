// One network port: reads the frames of a MAC, says of each what it is for, and keeps it until it is whole.
//
//	 64 or       ┌────────┐ fields ┌────────────┐ verdict
//	 512 bit ┬──►│ parser ├───────►│ classifier ├──────────┐
//	         │   └────────┘        └────────────┘          ▼
//	         │   ┌───────────────┐    ┌───────────┐   ┌─────────┐  512 bit
//	         └──►│ 8 beats, or 1,├───►│ words     ├──►│ frames, ├────────►
//	             │ to a word     │    │ (BRAM)    │   │ whole   │
//	             └───────────────┘    └───────────┘   └─────────┘
//
// A MAC cannot wait, so there is no tready: a frame for which there is no place is dropped whole, and counted.
module multimqc_rx #(
    parameter int TOPICS    = 4,
    parameter int PORT_BITS = 64,   // of a beat: 64 or 512
    parameter int WORDS     = 512,  // of 64 bytes
    parameter int FRAMES    = 64
) (
    input  logic                 clk,
    input  logic                 rst,

    input  logic [TOPICS-1:0]    cfg_open,
    input  logic [TOPICS*16-1:0] cfg_id,
    input  logic [TOPICS*16-1:0] cfg_push_port,
    input  logic [TOPICS*16-1:0] cfg_pull_port,
    input  logic [TOPICS*32-1:0] cfg_epoch,
    input  logic [15:0]          cfg_header_port,
    input  logic [15:0]          cfg_max_message,
    input  logic [15:0]          cfg_max_reply,
    input  logic [31:0]          cfg_trusted_network,
    input  logic [31:0]          cfg_trusted_mask,

    input  logic [PORT_BITS-1:0]   s_tdata,
    input  logic [PORT_BITS/8-1:0] s_tkeep,
    input  logic                 s_tlast,
    input  logic                 s_tuser,   // with tlast: the frame is broken
    input  logic                 s_tvalid,

    output logic [511:0]                         m_tdata,
    output logic                                 m_tlast,
    output logic [multimqc_pkg::FRAME_PORT-1:0]  m_tuser,
    output logic                                 m_tvalid,
    input  logic                                 m_tready,

    output logic                 event_received,  // for one clock: a frame was taken
    output logic                 event_overrun,   // for one clock: a frame was dropped for want of place, or as too long
    output logic                 event_broken     // for one clock: a frame was dropped that the MAC called broken
);
    localparam int A       = $clog2(WORDS);
    localparam int BYTES   = PORT_BITS / 8;
    localparam int PARTS   = 512 / PORT_BITS;  // beats of a word
    localparam int INDEX_W = 14 - $clog2(BYTES);
    localparam int USER_W  = multimqc_pkg::FRAME_PORT;
    localparam int MAX_BEATS = multimqc_pkg::MAX_FRAME_BYTES / BYTES;

    if (PORT_BITS != 64 && PORT_BITS != 512) begin : gen_bad_bits
        $error("PORT_BITS must be 64 or 512");
    end

    if (WORDS * 64 < multimqc_pkg::MAX_FRAME_BYTES || (1 << A) != WORDS) begin : gen_bad_words
        $error("WORDS must be a power of two that holds MAX_FRAME_BYTES");
    end

    // --- Clock 1: the beat goes into its place of a word --------------------------
    logic [PORT_BITS-1:0] d1;
    logic                 last1, valid1, error1;
    logic [INDEX_W-1:0]   index1;

    always_ff @(posedge clk) begin
        d1     <= s_tdata;
        last1  <= s_tlast;
        valid1 <= s_tvalid;
        error1 <= s_tlast && s_tuser;
        // The count stays at its end, so that a frame without end is too long for ever.
        if (valid1) index1 <= last1 ? '0 : &index1 ? index1 : index1 + 1'b1;
        if (rst) begin
            valid1 <= 1'b0;
            index1 <= '0;
        end
    end

    logic [511:0] word2;
    logic         full2, last2, error2, long2;
    wire  [31:0]  part1 = 32'(index1) % PARTS;

    always_ff @(posedge clk) begin
        if (valid1) begin
            for (int i = 0; i < PARTS; i++) if (part1 == i) word2[i*PORT_BITS +: PORT_BITS] <= d1;
        end
        full2  <= valid1 && (last1 || part1 == PARTS - 1);
        last2  <= valid1 && last1;
        error2 <= error1;
        long2  <= index1 >= INDEX_W'(MAX_BEATS);
        if (rst) begin
            full2 <= 1'b0;
            last2 <= 1'b0;
        end
    end

    // --- Clock 2: the word goes to memory, or the frame is dropped ----------------
    logic [A:0] written, begun, taken;
    logic [$clog2(FRAMES):0] frames;   // whole ones here or in the classifier
    logic dropping;

    wire no_word = written - taken == (A + 1)'(WORDS);
    wire no_frame = frames == ($clog2(FRAMES) + 1)'(FRAMES);
    wire lost   = dropping || (full2 && no_word) || long2 || (last2 && no_frame);
    wire drop2  = lost || error2;
    wire keep_word = full2 && !dropping && !no_word;
    wire pop;

    assign event_received = last2 && !drop2;
    assign event_overrun  = last2 && lost && !error2;
    assign event_broken   = last2 && error2;

    always_ff @(posedge clk) begin
        if (keep_word) written <= written + 1'b1;
        if (full2) dropping <= lost;
        if (last2) begin
            dropping <= 1'b0;
            if (drop2) written <= begun;
            else       begun   <= written + 1'b1;
        end
        frames <= frames + ($clog2(FRAMES) + 1)'(event_received) - ($clog2(FRAMES) + 1)'(pop);
        if (rst) begin
            written  <= '0;
            begun    <= '0;
            dropping <= 1'b0;
            frames   <= '0;
        end
    end

    // --- What the frame is for -----------------------------------------------------
    logic        f_valid, f_v6, f_datagram, f_more;
    logic [11:0] f_length;
    logic [15:0] f_ip_length;
    logic [31:0] f_source, f_udp_sum, f_ip_sum;
    logic [63:0] f_udp, f_word0, f_word1, f_word2, f_word3;

    multimqc_parser #(.PORT_BITS(PORT_BITS)) parser (
        .clk, .rst, .s_tdata, .s_tkeep, .s_tlast, .s_tvalid, .s_dropped(drop2),
        .f_valid, .f_length, .f_v6, .f_datagram, .f_more, .f_ip_length, .f_source, .f_udp,
        .f_word0, .f_word1, .f_word2, .f_word3, .f_udp_sum, .f_ip_sum
    );

    logic              c_valid;
    logic [USER_W-1:0] c_user, h_user;
    logic              h_valid;

    multimqc_classifier #(.TOPICS(TOPICS)) classifier (
        .clk, .rst, .cfg_open, .cfg_id, .cfg_push_port, .cfg_pull_port, .cfg_epoch, .cfg_header_port,
        .cfg_max_message, .cfg_max_reply, .cfg_trusted_network, .cfg_trusted_mask,
        .f_valid, .f_length, .f_v6, .f_datagram, .f_more, .f_ip_length, .f_source, .f_udp,
        .f_word0, .f_word1, .f_word2, .f_word3, .f_udp_sum, .f_ip_sum,
        .m_valid(c_valid), .m_user(c_user)
    );

    // `frames` keeps a place for each frame.
    logic verdicts_ready;
    multimqc_bypass_fifo #(.WIDTH(USER_W), .DEPTH(FRAMES)) verdicts (
        .clk, .rst, .s_data(c_user), .s_valid(c_valid), .s_ready(verdicts_ready),
        .m_data(h_user), .m_valid(h_valid), .m_ready(pop)
    );

    // --- Out: a word in each clock -------------------------------------------------
    logic [5:0] word_index;
    wire [multimqc_pkg::FRAME_LENGTH_W-1:0] h_length = h_user[multimqc_pkg::FRAME_LENGTH +: multimqc_pkg::FRAME_LENGTH_W];
    wire [5:0] last_index = 6'((h_length - 1'b1) >> 6);
    wire       at_last = word_index == last_index;
    // The memory's output is the output's register: the next word is read when it is free or taken.
    wire issue = h_valid && (!m_tvalid || m_tready);

    assign pop = issue && at_last;

    multimqc_ram #(.WIDTH(512), .DEPTH(WORDS)) words (
        .clk, .write(keep_word), .write_address(written[A-1:0]), .write_data(word2),
        .read(issue), .read_address(taken[A-1:0]), .read_data(m_tdata)
    );

    always_ff @(posedge clk) begin
        if (issue) begin
            taken      <= taken + 1'b1;
            word_index <= at_last ? '0 : word_index + 1'b1;
            m_tlast    <= at_last;
            m_tuser    <= h_user;
        end
        m_tvalid <= issue || (m_tvalid && !m_tready);
        if (rst) begin
            taken      <= '0;
            word_index <= '0;
            m_tvalid   <= 1'b0;
        end
    end
endmodule
