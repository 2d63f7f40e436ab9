// Moves every topic's log from level 1 to the DRAM: messages are combined to bursts that end at multiples of BURST bytes, and what
// waits for longer than AGE clocks is written with byte strobes.
//
//   offset    floor                               written        sent
//             |  can be read                      |  on its way  |
//   log   ----+-----------------------------------+--------------+
//             |<- RING_BYTES, at most -------------------------->|
//
// `written` moves with the DRAM's response, so a byte that was not written yet is never read. `floors` moves before the burst leaves
// that overwrites: a reader that looks at it after its last beat knows whether its bytes were whole. Bytes that level 1 has lost, and
// bursts that the DRAM refused, are holes; what lies before a hole is not answered any more.
module store_level2_write #(
    parameter int TOPICS = 8,
    parameter longint RING_BYTES = 1 << 20,
    parameter int BURST = 512,
    parameter int AGE = 1024,
    parameter int SKIP_BYTES = 4096,
    parameter int ADDR_W = 34
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [TOPICS*64-1:0] committed,
    input  logic                 stored_valid,
    input  logic [7:0]           stored_topic,
    input  logic                 open_valid,
    input  logic [7:0]           open_topic,
    input  logic [63:0]          open_offset,
    input  logic                 flush,
    output logic                 job_valid,
    input  logic                 job_ready,
    output logic [7:0]           job_topic,
    output logic [63:0]          job_offset,
    output logic [15:0]          job_length,
    input  logic                 decided,
    input  logic                 decided_hit,
    input  logic [63:0]          decided_floor,
    input  logic [63:0]          decided_committed,
    input  logic                 s_valid,
    output logic                 s_ready,
    input  logic [512:0]         s_data,
    output logic [TOPICS*64-1:0] written,
    output logic [TOPICS*64-1:0] floors,
    // Changes when a topic is opened.
    output logic [TOPICS*2-1:0]  generations,
    output logic                 hole_valid,
    output logic [7:0]           hole_topic,
    output logic [63:0]          hole_bytes,
    output logic [ADDR_W-1:0]    m_axi_awaddr,
    output logic [7:0]           m_axi_awlen,
    output logic                 m_axi_awvalid,
    input  logic                 m_axi_awready,
    output logic [511:0]         m_axi_wdata,
    output logic [63:0]          m_axi_wstrb,
    output logic                 m_axi_wlast,
    output logic                 m_axi_wvalid,
    input  logic                 m_axi_wready,
    input  logic [1:0]           m_axi_bresp,
    input  logic                 m_axi_bvalid,
    output logic                 m_axi_bready
);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int RW = $clog2(RING_BYTES);

    if ((64'd1 << RW) != RING_BYTES || RING_BYTES < 8192) begin : g_ring
        $error("store_level2_write: RING_BYTES is not a power of two of at least 8,192");
    end
    if ((1 << $clog2(BURST)) != BURST || BURST < 64 || BURST > 1024) begin : g_burst
        $error("store_level2_write: BURST is not a power of two from 64 to 1,024");
    end
    if (RW + $clog2(TOPICS) > ADDR_W) begin : g_address
        $error("store_level2_write: the rings of all topics do not fit into ADDR_W");
    end

`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_STROBE, BUG_EARLY;
    initial begin
        BUG_STROBE = $test$plusargs("BUG_STROBE") != 0;
        BUG_EARLY = $test$plusargs("BUG_EARLY") != 0;
    end
`else
    localparam logic BUG_STROBE = 1'b0;
    localparam logic BUG_EARLY = 1'b0;
`endif

    logic event_range, event_void, event_hole;
    logic [7:0] event_topic;
    logic [63:0] event_offset, event_hole_bytes;
    logic [15:0] event_length;
    logic [4:0] headers_in;

    store_transfer #(
        .TOPICS    (TOPICS),
        .ALIGN     (1),
        .SKIP_BYTES(SKIP_BYTES)
    ) transfer (
        .clk,
        .rst,
        .committed,
        .stored_valid,
        .stored_topic,
        .open_valid,
        .open_topic,
        .open_offset,
        .size  (16'(BURST)),
        .age   (32'(AGE)),
        .flush,
        .enable(headers_in < 5'd14),
        .job_valid,
        .job_ready,
        .job_topic,
        .job_offset,
        .job_length,
        .decided,
        .decided_hit,
        .decided_floor,
        .decided_committed,
        .event_range,
        .event_void,
        .event_hole,
        .event_topic,
        .event_offset,
        .event_length,
        .event_hole_bytes
    );

    // --- Headers, one for each burst ---------------------------------------------------

    localparam int HEADER_W = 1 + 2 + TW + 64 + 16;
    wire [TW-1:0] changed = event_topic[TW-1:0];
    logic header_ready, header_valid, header_taken, header_void;
    logic [1:0] generation;
    logic [TW-1:0] topic;
    logic [63:0] offset;
    logic [15:0] length;

    multimqc_fifo #(
        .WIDTH(HEADER_W),
        .DEPTH(16)
    ) headers (
        .clk,
        .rst,
        .s_data ({event_void, generations[2*changed+:2], changed, event_offset, event_length}),
        .s_valid(event_range),
        .s_ready(header_ready),
        .m_data ({header_void, generation, topic, offset, length}),
        .m_valid(header_valid),
        .m_ready(header_taken)
    );

    always_ff @(posedge clk) begin
        headers_in <= headers_in + 5'(event_range) - 5'(header_valid && header_taken);
        if (rst) headers_in <= '0;
    end

    // --- Bursts --------------------------------------------------------------------------

    logic sent_ready, response_valid, address_done;
    logic [1:0] response_generation;
    logic [TW-1:0] response_topic;
    logic [63:0] response_end;
    logic [15:0] response_length;
    logic [15:0] passed;  // bytes of the beats that are done
    wire [15:0] stop = {10'd0, offset[5:0]} + length;
    wire [15:0] left = stop - passed;
    wire begins = passed == 16'd0;
    wire may = header_valid && !header_void && sent_ready;
    wire data_moves = m_axi_wvalid && m_axi_wready;
    wire address_moves = m_axi_awvalid && m_axi_awready;
    wire address_is_done = address_done || address_moves;

    if (TOPICS > 1) begin : g_topics
        assign m_axi_awaddr = ADDR_W'({topic, offset[RW-1:6], 6'd0});
    end else begin : g_topic
        assign m_axi_awaddr = ADDR_W'({offset[RW-1:6], 6'd0});
    end
    assign m_axi_awlen   = 8'(((stop + 16'd63) >> 6) - 16'd1);
    assign m_axi_awvalid = may && !address_done;
    // The last beat waits for its address, so that a burst ends with both.
    assign m_axi_wvalid  = may && s_valid && (!s_data[512] || address_done);
    assign m_axi_wdata   = s_data[511:0];
    assign m_axi_wlast   = s_data[512];
    assign m_axi_wstrb   = {64{BUG_STROBE}} | (({64{1'b1}} << (begins ? offset[5:0] : 6'd0))
        & multimqc_pkg::keep_of(left >= 16'd64 ? 7'd64 : left[6:0]));
    assign s_ready       = header_valid && (header_void || (sent_ready && m_axi_wready && (!s_data[512] || address_done)));
    assign header_taken  = header_void ? s_valid && s_data[512] : data_moves && s_data[512];

    always_ff @(posedge clk) begin
        if (data_moves) passed <= s_data[512] ? 16'd0 : passed + 16'd64;
        address_done <= address_is_done && !(header_taken && !header_void);
        if (rst) begin
            passed       <= '0;
            address_done <= 1'b0;
        end
    end

    multimqc_fifo #(
        .WIDTH(2 + TW + 64 + 16),
        .DEPTH(16)
    ) outstanding (
        .clk,
        .rst,
        .s_data ({generation, topic, offset + {48'd0, length}, length}),
        .s_valid(data_moves && s_data[512]),
        .s_ready(sent_ready),
        .m_data ({response_generation, response_topic, response_end, response_length}),
        .m_valid(response_valid),
        .m_ready(m_axi_bvalid)
    );
    assign m_axi_bready = 1'b1;

    // --- What the level has ---------------------------------------------------------------

    logic moved_valid;
    logic [TW-1:0] moved_topic;
    logic [63:0] moved_first;
    wire [TW-1:0] opened = open_topic[TW-1:0];
    wire [63:0] range_end = event_offset + {48'd0, event_length};
    wire responds = response_valid && m_axi_bvalid && response_generation == generations[2*response_topic+:2];
    wire refused = responds && m_axi_bresp != 2'd0;

    always_ff @(posedge clk) begin
        moved_valid <= event_range && !event_void && range_end > 64'(RING_BYTES);
        moved_topic <= changed;
        moved_first <= range_end - 64'(RING_BYTES);
        if (moved_valid && moved_first > floors[64*moved_topic+:64]) floors[64*moved_topic+:64] <= moved_first;
        if (responds) written[64*response_topic+:64] <= response_end;
        if (BUG_EARLY && event_range && !event_void) written[64*changed+:64] <= range_end;
        if (refused) floors[64*response_topic+:64] <= response_end;
        if (event_hole) floors[64*changed+:64] <= event_offset;
        if (open_valid) begin
            written[64*opened+:64]   <= open_offset;
            floors[64*opened+:64]    <= open_offset;
            generations[2*opened+:2] <= generations[2*opened+:2] + 2'd1;
            if (moved_topic == opened || changed == opened) moved_valid <= 1'b0;
        end
        hole_valid <= event_hole || refused;
        hole_topic <= event_hole ? event_topic : 8'(response_topic);
        hole_bytes <= event_hole ? event_hole_bytes : {48'd0, response_length};
        if (rst) begin
            moved_valid <= 1'b0;
            written     <= '0;
            floors      <= '0;
            generations <= '0;
            hole_valid  <= 1'b0;
        end
    end
    wire unused = &{1'b0, header_ready, open_topic, event_topic};
endmodule
