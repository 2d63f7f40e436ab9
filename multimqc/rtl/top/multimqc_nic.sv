// The NIC level of MultiMQC: between the MACs of the network ports, the host and the board's DRAM. multimqc/rtl/README.md has the picture.
//
// Port i has the i-th part of each flat vector. All streams are AXI-Stream; those from MACs have no tready.
//
// Behind the ports everything is 64 bytes wide, so all ports together may bring as much: up to eight of 64 bits, for 10 GbE at
// 156.25 MHz or 25 GbE at 390.625 MHz, or one of 512 bits, for 100 GbE at 322.265625 MHz.
module multimqc_nic #(
    parameter int PORT_BITS      = 64,     // of a port's beat: 64 or 512
    parameter int PORTS          = PORT_BITS == 512 ? 1 : 4,
    parameter int CLOCK_KHZ      = PORT_BITS == 512 ? 322266 : 156250,
    parameter int TOPICS         = 4,
    parameter int LEVEL1_BYTES   = 32768,  // of each topic
    parameter longint LEVEL2_BYTES = 64'd2147483648,  // of each topic; 0: no level 2
    parameter int LEVEL2_NS      = 1600,   // the most from the last byte of a burst to the DRAM's confirmation
    parameter int ADDR_W         = 34,
    // Input and output functions: whether they are there, and what they look at (multimqc/rtl/store/functions).
    parameter int FUNCTIONS        = 0,
    parameter int RECORD_BYTES     = 32,
    parameter int NUMBER_AT        = 0,
    parameter int NUMBER_BYTES     = 4,
    parameter int NUMBER_IS_SIGNED = 0,
    parameter longint DROP_LOW     = 100,
    parameter longint DROP_HIGH    = 200,
    parameter int FIELD_AT         = 8,
    parameter int FIELD_BYTES      = 4
) (
    input  logic                 clk,
    input  logic                 rst,

    // From the network: tuser with tlast says that the frame is broken.
    input  logic [PORTS*PORT_BITS-1:0]   s_port_tdata,
    input  logic [PORTS*PORT_BITS/8-1:0] s_port_tkeep,
    input  logic [PORTS-1:0]     s_port_tlast,
    input  logic [PORTS-1:0]     s_port_tuser,
    input  logic [PORTS-1:0]     s_port_tvalid,
    // To the network.
    output logic [PORTS*PORT_BITS-1:0]   m_port_tdata,
    output logic [PORTS*PORT_BITS/8-1:0] m_port_tkeep,
    output logic [PORTS-1:0]     m_port_tlast,
    output logic [PORTS-1:0]     m_port_tvalid,
    input  logic [PORTS-1:0]     m_port_tready,

    // From the host; tdest: the port to send to.
    input  logic [511:0]         s_host_tdata,
    input  logic [63:0]          s_host_tkeep,
    input  logic                 s_host_tlast,
    input  logic [3:0]           s_host_tdest,
    input  logic                 s_host_tvalid,
    output logic                 s_host_tready,
    // To the host; tuser: bit 4 is 1 for a batch, bits 3 to 0 are the port a frame came from.
    output logic [511:0]         m_host_tdata,
    output logic [63:0]          m_host_tkeep,
    output logic                 m_host_tlast,
    output logic [4:0]           m_host_tuser,
    output logic                 m_host_tvalid,
    input  logic                 m_host_tready,

    input  logic [23:0]          s_axil_awaddr,
    input  logic                 s_axil_awvalid,
    output logic                 s_axil_awready,
    input  logic [31:0]          s_axil_wdata,
    input  logic [3:0]           s_axil_wstrb,
    input  logic                 s_axil_wvalid,
    output logic                 s_axil_wready,
    output logic [1:0]           s_axil_bresp,
    output logic                 s_axil_bvalid,
    input  logic                 s_axil_bready,
    input  logic [23:0]          s_axil_araddr,
    input  logic                 s_axil_arvalid,
    output logic                 s_axil_arready,
    output logic [31:0]          s_axil_rdata,
    output logic [1:0]           s_axil_rresp,
    output logic                 s_axil_rvalid,
    input  logic                 s_axil_rready,

    output logic [ADDR_W-1:0]    m_axi_awaddr,
    output logic [7:0]           m_axi_awlen,
    output logic [2:0]           m_axi_awsize,
    output logic [1:0]           m_axi_awburst,
    output logic                 m_axi_awvalid,
    input  logic                 m_axi_awready,
    output logic [511:0]         m_axi_wdata,
    output logic [63:0]          m_axi_wstrb,
    output logic                 m_axi_wlast,
    output logic                 m_axi_wvalid,
    input  logic                 m_axi_wready,
    input  logic [1:0]           m_axi_bresp,
    input  logic                 m_axi_bvalid,
    output logic                 m_axi_bready,
    output logic [ADDR_W-1:0]    m_axi_araddr,
    output logic [7:0]           m_axi_arlen,
    output logic [2:0]           m_axi_arsize,
    output logic [1:0]           m_axi_arburst,
    output logic                 m_axi_arvalid,
    input  logic                 m_axi_arready,
    input  logic [511:0]         m_axi_rdata,
    input  logic [1:0]           m_axi_rresp,
    input  logic                 m_axi_rlast,
    input  logic                 m_axi_rvalid,
    output logic                 m_axi_rready
);
    localparam int PORT_W    = multimqc_pkg::PORT_W;
    localparam int USER_W    = multimqc_pkg::FRAME_USER_W;
    localparam int COUNTER_A = (TOPICS > 1 ? $clog2(TOPICS) : 1) + (PORTS > 1 ? $clog2(PORTS) : 1) + multimqc_pkg::COUNT_W;
    localparam int INDEX_W   = PORTS > 1 ? $clog2(PORTS) : 1;
    localparam int PORT_BYTES = PORT_BITS / 8;
    // Bytes that all ports bring in a clock: of 64 bits, whole beats; of 512 bits, what 100 GbE has (12.5 GB/s).
    localparam int BYTES_PER_CLOCK = PORT_BITS == 512 ? (12_500_000 + CLOCK_KHZ - 1) / CLOCK_KHZ : PORTS * PORT_BYTES;
    // A ring gives 64 bytes in a clock, to the host and to level 2: more than half of that needs two.
    localparam int RINGS           = BYTES_PER_CLOCK > 32 ? 2 : 1;
    localparam int LEVEL2_LATENCY  = (LEVEL2_NS * CLOCK_KHZ + 999_999) / 1_000_000;  // in clocks

    if (PORT_BITS != 64 && PORT_BITS != 512) begin : gen_bad_bits
        $error("PORT_BITS must be 64 or 512");
    end
    if (PORTS < 1 || PORTS * PORT_BITS > 512) begin : gen_bad_ports
        $error("PORTS must be 1 to 8, or 1 if a port has 512 bits");
    end
    // The most beats for a byte of the wire have frames of 65 bytes: two for 89, with preamble, checksum and pause.
    if (CLOCK_KHZ < 1000 || CLOCK_KHZ > 1_000_000 || (PORT_BITS == 512 && CLOCK_KHZ < 280_899)) begin : gen_bad_clock
        $error("CLOCK_KHZ must be 1,000 to 1,000,000, and 280,899 or more for 100 GbE");
    end
    if (LEVEL2_NS < 1 || LEVEL2_NS > 2000) begin : gen_bad_latency
        $error("LEVEL2_NS must be 1 to 2,000");
    end

    // --- Settings and counters -----------------------------------------------------------------
    logic [1:0]           cfg_levels;
    logic [15:0]          cfg_header_port, cfg_max_message, cfg_max_reply, cfg_batch_bytes;
    logic [31:0]          cfg_trusted_network, cfg_trusted_mask, cfg_batch_age, cfg_batch_ports, cfg_batch_cookie;
    logic [95:0]          cfg_batch_macs;
    logic [63:0]          cfg_batch_addresses, cfg_open_offset;
    logic [TOPICS-1:0]    cfg_open;
    logic [TOPICS*16-1:0] cfg_id, cfg_push_port, cfg_pull_port;
    logic [TOPICS*32-1:0] cfg_epoch;
    logic [TOPICS*2-1:0]  cfg_input, cfg_output;
    logic                 cfg_flush, cfg_open_valid, event_host_dropped;
    logic [7:0]           cfg_open_topic;
    logic [PORTS-1:0]     event_received, event_overrun, event_broken, event_sent, event_tx_dropped;
    logic                 counter_read, counters_ready;
    logic [COUNTER_A-1:0] counter_address;
    logic [127:0]         counter_data;
    logic [7:0]           stat_topic;
    logic [3:0]           stat_index;
    logic [63:0]          stat_value;
    logic                 frame_event, push_event, push_waits, pull_event, pull_event_ready;
    logic [31:0]          frame_event_data, push_event_data, push_waits_data, pull_event_data;

    multimqc_registers #(
        .TOPICS(TOPICS), .PORTS(PORTS), .COUNTER_A(COUNTER_A), .PORT_BYTES(PORT_BYTES), .CLOCK_KHZ(CLOCK_KHZ)
    ) registers (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .cfg_levels, .cfg_header_port, .cfg_max_message, .cfg_max_reply, .cfg_trusted_network, .cfg_trusted_mask,
        .cfg_batch_bytes, .cfg_batch_age, .cfg_batch_macs, .cfg_batch_addresses, .cfg_batch_ports, .cfg_batch_cookie,
        .cfg_flush, .cfg_open, .cfg_id, .cfg_push_port, .cfg_pull_port, .cfg_epoch, .cfg_input, .cfg_output, .cfg_open_valid,
        .cfg_open_topic, .cfg_open_offset,
        .event_received, .event_overrun, .event_broken, .event_sent, .event_tx_dropped, .event_host_dropped,
        .counter_read, .counter_address, .counter_data, .stat_topic, .stat_index, .stat_value
    );

    multimqc_counters #(.TOPICS(TOPICS), .PORTS(PORTS)) counters (
        .clk, .rst, .ready(counters_ready),
        .s_frame_valid(frame_event || push_waits), .s_frame_data(frame_event ? frame_event_data : push_waits_data),
        .s_pull_valid(pull_event), .s_pull_data(pull_event_data), .s_pull_ready(pull_event_ready),
        .read(counter_read), .read_address(counter_address), .read_data(counter_data)
    );

    // A frame is counted by the splitter or as a push, so no more events than frames come, and only as many pushes wait as are on their
    // way between both.
    logic push_event_ready;
    wire  unused_event = &{1'b0, push_event_ready};
    multimqc_fifo #(.WIDTH(32), .DEPTH(16)) push_events (
        .clk, .rst, .s_data(push_event_data), .s_valid(push_event), .s_ready(push_event_ready),
        .m_data(push_waits_data), .m_valid(push_waits), .m_ready(!frame_event)
    );

    // --- From the network: one stream of frames ------------------------------------------------------
    // A beat, and what travels beside it, without the port.
    localparam int RX_W = 512 + multimqc_pkg::FRAME_PORT;
    logic [PORTS*RX_W-1:0] rx_data;
    logic [PORTS-1:0]      rx_last, rx_valid, rx_ready;

    for (genvar i = 0; i < PORTS; i++) begin : gen_rx
        multimqc_rx #(.TOPICS(TOPICS), .PORT_BITS(PORT_BITS)) rx (
            .clk, .rst, .cfg_open, .cfg_id, .cfg_push_port, .cfg_pull_port, .cfg_epoch, .cfg_header_port,
            .cfg_max_message, .cfg_max_reply, .cfg_trusted_network, .cfg_trusted_mask,
            .s_tdata(s_port_tdata[i*PORT_BITS +: PORT_BITS]), .s_tkeep(s_port_tkeep[i*PORT_BYTES +: PORT_BYTES]), .s_tlast(s_port_tlast[i]),
            .s_tuser(s_port_tuser[i]), .s_tvalid(s_port_tvalid[i]),
            .m_tdata(rx_data[i*RX_W +: 512]), .m_tlast(rx_last[i]),
            .m_tuser(rx_data[i*RX_W + 512 +: multimqc_pkg::FRAME_PORT]), .m_tvalid(rx_valid[i]), .m_tready(rx_ready[i]),
            .event_received(event_received[i]), .event_overrun(event_overrun[i]), .event_broken(event_broken[i])
        );
    end

    logic [RX_W-1:0]    in_data;
    logic               in_last, in_valid, in_ready;
    logic [INDEX_W-1:0] in_port;

    multimqc_arbiter #(.PORTS(PORTS), .WIDTH(RX_W)) ports (
        .clk, .rst, .s_data(rx_data), .s_last(rx_last), .s_valid(rx_valid), .s_ready(rx_ready),
        .m_data(in_data), .m_last(in_last), .m_index(in_port), .m_valid(in_valid), .m_ready(in_ready)
    );

    // --- Where it belongs ------------------------------------------------------------------------------
    logic [511:0]        split_tdata;
    logic [63:0]         split_tkeep;
    logic                split_tlast, push_valid, push_ready, pull_valid, pull_ready, pull_has_room, pass_valid, pass_ready;
    logic [USER_W-1:0]   split_tuser;

    multimqc_split split (
        .clk, .rst, .cfg_serve(cfg_levels != 2'b00), .counters_ready,
        .s_tdata(in_data[511:0]), .s_tlast(in_last), .s_tuser({PORT_W'(in_port), in_data[512 +: multimqc_pkg::FRAME_PORT]}),
        .s_tvalid(in_valid), .s_tready(in_ready),
        .m_tdata(split_tdata), .m_tkeep(split_tkeep), .m_tlast(split_tlast), .m_tuser(split_tuser),
        .m_push_tvalid(push_valid), .m_push_tready(push_ready), .m_pull_tvalid(pull_valid), .m_pull_tready(pull_ready),
        .pull_has_room, .m_pass_tvalid(pass_valid), .m_pass_tready(pass_ready),
        .event_valid(frame_event), .event_data(frame_event_data)
    );

    // --- The store -----------------------------------------------------------------------------------------
    logic [511:0] push_tdata, response_tdata, batch_tdata;
    logic [63:0]  push_tkeep, response_tkeep, batch_tkeep;
    logic         push_tlast, response_tlast, batch_tlast, push_tvalid, response_tvalid, batch_tvalid;
    logic         push_tready, response_tready, batch_tready, read_valid, read_ready;
    logic [multimqc_pkg::PUSH_USER_W-1:0]     push_tuser;
    logic [multimqc_pkg::READ_REQUEST_W-1:0]  read_data;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] response_tuser;
    logic [multimqc_pkg::BATCH_USER_W-1:0]    batch_tuser;

    multimqc_push push (
        .clk, .rst, .s_tdata(split_tdata), .s_tlast(split_tlast), .s_tuser(split_tuser), .s_tvalid(push_valid),
        .s_tready(push_ready), .m_tdata(push_tdata), .m_tkeep(push_tkeep), .m_tlast(push_tlast), .m_tuser(push_tuser),
        .m_tvalid(push_tvalid), .m_tready(1'b1)
    );

    // --- Functions ---------------------------------------------------------------------------------------------
    logic [511:0] input_tdata, sent_tdata;
    logic [63:0]  sent_tkeep;
    logic         input_tlast, input_tvalid, input_dropped, sent_tlast, sent_tvalid, sent_tready, read_room;
    logic [multimqc_pkg::PUSH_USER_W-1:0]     input_tuser;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] sent_tuser;
    // The store takes each beat of a push, so there is no ready on the way to it.
    wire          unused_push = &{1'b0, push_tkeep, push_tready};

    multimqc_input_slot #(
        .TOPICS(TOPICS), .FUNCTIONS(FUNCTIONS), .NUMBER_AT(NUMBER_AT), .NUMBER_BYTES(NUMBER_BYTES), .NUMBER_IS_SIGNED(NUMBER_IS_SIGNED),
        .DROP_LOW(DROP_LOW), .DROP_HIGH(DROP_HIGH), .FIELD_AT(FIELD_AT), .FIELD_BYTES(FIELD_BYTES)
    ) input_slot (
        .clk, .rst, .cfg_function(cfg_input), .s_tdata(push_tdata), .s_tlast(push_tlast), .s_tuser(push_tuser), .s_tvalid(push_tvalid),
        .m_tdata(input_tdata), .m_tlast(input_tlast), .m_tuser(input_tuser), .m_tvalid(input_tvalid), .dropped(input_dropped)
    );
    assign push_event = (input_tvalid && input_tlast) || input_dropped;
    assign push_event_data = {input_dropped ? multimqc_pkg::COUNT_DROPPED : multimqc_pkg::COUNT_STORED,
                              input_tuser[multimqc_pkg::PUSH_TOPIC +: multimqc_pkg::TOPIC_W], input_tuser[multimqc_pkg::PUSH_PORT +: PORT_W],
                              input_dropped ? 16'd0 : input_tuser[multimqc_pkg::PUSH_LENGTH +: 16]};

    multimqc_output_slot #(
        .TOPICS(TOPICS), .FUNCTIONS(FUNCTIONS), .RECORD_BYTES(RECORD_BYTES), .NUMBER_AT(NUMBER_AT), .NUMBER_BYTES(NUMBER_BYTES),
        .NUMBER_IS_SIGNED(NUMBER_IS_SIGNED), .DROP_LOW(DROP_LOW), .DROP_HIGH(DROP_HIGH), .FIELD_AT(FIELD_AT), .FIELD_BYTES(FIELD_BYTES)
    ) output_slot (
        .clk, .rst, .cfg_function(cfg_output), .read_data, .read_taken(read_valid && read_ready && read_room), .read_room,
        .s_tdata(response_tdata), .s_tkeep(response_tkeep), .s_tlast(response_tlast), .s_tuser(response_tuser),
        .s_tvalid(response_tvalid), .s_tready(response_tready),
        .m_tdata(sent_tdata), .m_tkeep(sent_tkeep), .m_tlast(sent_tlast), .m_tuser(sent_tuser), .m_tvalid(sent_tvalid),
        .m_tready(sent_tready)
    );

    multimqc_store #(
        .TOPICS(TOPICS), .LEVEL1_BYTES(LEVEL1_BYTES), .LEVEL2_BYTES(LEVEL2_BYTES), .BYTES_PER_CLOCK(BYTES_PER_CLOCK),
        .LEVEL2_LATENCY(LEVEL2_LATENCY), .RINGS(RINGS), .ADDR_W(ADDR_W)
    ) store (
        .clk, .rst,
        .s_push_tdata(input_tdata), .s_push_tkeep({64{1'b1}}), .s_push_tlast(input_tlast), .s_push_tuser(input_tuser),
        .s_push_tvalid(input_tvalid), .s_push_tready(push_tready),
        .s_read_data(read_data), .s_read_valid(read_valid && read_room), .s_read_ready(read_ready),
        .m_response_tdata(response_tdata), .m_response_tkeep(response_tkeep), .m_response_tlast(response_tlast),
        .m_response_tuser(response_tuser), .m_response_tvalid(response_tvalid), .m_response_tready(response_tready),
        .m_batch_tdata(batch_tdata), .m_batch_tkeep(batch_tkeep), .m_batch_tlast(batch_tlast), .m_batch_tuser(batch_tuser),
        .m_batch_tvalid(batch_tvalid), .m_batch_tready(batch_tready),
        .cfg_open_valid, .cfg_open_topic, .cfg_open_offset, .cfg_levels, .cfg_batch_bytes, .cfg_batch_age, .cfg_flush,
        .stat_topic, .stat_index, .stat_value,
        .m_axi_awaddr, .m_axi_awlen, .m_axi_awsize, .m_axi_awburst, .m_axi_awvalid, .m_axi_awready,
        .m_axi_wdata, .m_axi_wstrb, .m_axi_wlast, .m_axi_wvalid, .m_axi_wready,
        .m_axi_bresp, .m_axi_bvalid, .m_axi_bready,
        .m_axi_araddr, .m_axi_arlen, .m_axi_arsize, .m_axi_arburst, .m_axi_arvalid, .m_axi_arready,
        .m_axi_rdata, .m_axi_rresp, .m_axi_rlast, .m_axi_rvalid, .m_axi_rready
    );

    // --- Pulls and their replies --------------------------------------------------------------------------
    logic [multimqc_pkg::HEADER_W-1:0] reply_header, batch_header;
    logic [511:0]      answer_tdata, reply_tdata, miss_tdata;
    logic [63:0]       answer_tkeep, reply_tkeep, miss_tkeep;
    logic              answer_tlast, answer_tvalid, answer_tready, reply_tlast, reply_tvalid, reply_tready;
    logic              miss_tlast, miss_tvalid, miss_tready;
    logic [PORT_W-1:0] reply_tdest, miss_tuser;

    multimqc_pull #(.TOPICS(TOPICS)) pull (
        .clk, .rst, .cfg_id, .cfg_epoch,
        .s_tdata(split_tdata), .s_tkeep(split_tkeep), .s_tlast(split_tlast), .s_tuser(split_tuser), .s_tvalid(pull_valid),
        .s_tready(pull_ready), .has_room(pull_has_room), .m_read_data(read_data), .m_read_valid(read_valid),
        .m_read_ready(read_ready && read_room), .s_response_tdata(sent_tdata), .s_response_tkeep(sent_tkeep), .s_response_tlast(sent_tlast),
        .s_response_tuser(sent_tuser), .s_response_tvalid(sent_tvalid), .s_response_tready(sent_tready),
        .m_header(reply_header), .m_tdata(answer_tdata), .m_tkeep(answer_tkeep), .m_tlast(answer_tlast),
        .m_tvalid(answer_tvalid), .m_tready(answer_tready),
        .m_miss_tdata(miss_tdata), .m_miss_tkeep(miss_tkeep), .m_miss_tlast(miss_tlast), .m_miss_tuser(miss_tuser),
        .m_miss_tvalid(miss_tvalid), .m_miss_tready(miss_tready),
        .event_data(pull_event_data), .event_valid(pull_event), .event_ready(pull_event_ready)
    );

    multimqc_framer replies (
        .clk, .rst, .s_header(reply_header), .s_tdata(answer_tdata), .s_tkeep(answer_tkeep), .s_tlast(answer_tlast),
        .s_tvalid(answer_tvalid), .s_tready(answer_tready), .m_tdata(reply_tdata), .m_tkeep(reply_tkeep),
        .m_tlast(reply_tlast), .m_tdest(reply_tdest), .m_tvalid(reply_tvalid), .m_tready(reply_tready)
    );

    // --- To the host: other frames and missed pulls, which are dropped if the host is slow; batches, which wait ---
    localparam int HOST_W = 512 + 64 + PORT_W;
    logic [HOST_W-1:0] other_data;
    logic              other_last, other_valid, other_ready, other_index;

    multimqc_arbiter #(.PORTS(2), .WIDTH(HOST_W)) others (
        .clk, .rst,
        .s_data({miss_tuser, miss_tkeep, miss_tdata, split_tuser[multimqc_pkg::FRAME_PORT +: PORT_W], split_tkeep, split_tdata}),
        .s_last({miss_tlast, split_tlast}), .s_valid({miss_tvalid, pass_valid}), .s_ready({miss_tready, pass_ready}),
        .m_data(other_data), .m_last(other_last), .m_index(other_index), .m_valid(other_valid), .m_ready(other_ready)
    );

    logic [511:0]      frame_tdata, framed_tdata, merged_tdata, made_tdata;
    logic [63:0]       frame_tkeep, framed_tkeep, made_tkeep;
    logic              frame_tlast, frame_tvalid, frame_tready, to_host_room, framed_tlast, framed_tvalid, framed_tready, host_index;
    logic              made_tlast, made_tvalid, made_tready;
    logic [PORT_W-1:0] frame_tuser, framed_tdest, host_port;

    multimqc_frame_fifo #(.USER_W(PORT_W), .MAX_BEATS(multimqc_pkg::MAX_FRAME_BYTES / 64), .DROP(1'b1)) to_host (
        .clk, .rst, .s_tdata(other_data[511:0]), .s_tkeep(other_data[512 +: 64]), .s_tlast(other_last),
        .s_tuser(other_data[576 +: PORT_W]), .s_tvalid(other_valid), .s_tready(other_ready),
        .m_tdata(frame_tdata), .m_tkeep(frame_tkeep), .m_tlast(frame_tlast), .m_tuser(frame_tuser), .m_tvalid(frame_tvalid),
        .m_tready(frame_tready), .has_room(to_host_room), .event_dropped(event_host_dropped)
    );

    multimqc_batch #(.TOPICS(TOPICS)) batch (
        .clk, .rst, .cfg_id, .cfg_epoch, .cfg_batch_macs, .cfg_batch_addresses, .cfg_batch_ports, .cfg_batch_cookie,
        .s_tdata(batch_tdata), .s_tkeep(batch_tkeep), .s_tlast(batch_tlast), .s_tuser(batch_tuser), .s_tvalid(batch_tvalid),
        .s_tready(batch_tready), .m_header(batch_header), .m_tdata(made_tdata), .m_tkeep(made_tkeep), .m_tlast(made_tlast),
        .m_tvalid(made_tvalid), .m_tready(made_tready)
    );

    multimqc_framer batches (
        .clk, .rst, .s_header(batch_header), .s_tdata(made_tdata), .s_tkeep(made_tkeep), .s_tlast(made_tlast),
        .s_tvalid(made_tvalid), .s_tready(made_tready), .m_tdata(framed_tdata), .m_tkeep(framed_tkeep),
        .m_tlast(framed_tlast), .m_tdest(framed_tdest), .m_tvalid(framed_tvalid), .m_tready(framed_tready)
    );

    multimqc_arbiter #(.PORTS(2), .WIDTH(HOST_W)) host (
        .clk, .rst,
        .s_data({framed_tdest, framed_tkeep, framed_tdata, frame_tuser, frame_tkeep, frame_tdata}),
        .s_last({framed_tlast, frame_tlast}), .s_valid({framed_tvalid, frame_tvalid}),
        .s_ready({framed_tready, frame_tready}),
        .m_data({host_port, m_host_tkeep, merged_tdata}), .m_last(m_host_tlast), .m_index(host_index), .m_valid(m_host_tvalid),
        .m_ready(m_host_tready)
    );
    assign m_host_tdata = merged_tdata;
    assign m_host_tuser = {host_index, host_port};

    // --- To the network: replies, and frames of the host ----------------------------------------------------
    logic [511:0]      out_tdata;
    logic [63:0]       out_tkeep;
    logic              out_tlast, out_tvalid, out_tready, from_host_room, event_giant;
    logic [PORT_W-1:0] out_tdest;
    logic [PORTS-1:0]  tx_reply_ready, tx_host_ready;

    multimqc_frame_fifo #(.USER_W(PORT_W), .MAX_BEATS(multimqc_pkg::MAX_FRAME_BYTES / 64)) from_host (
        .clk, .rst, .s_tdata(s_host_tdata), .s_tkeep(s_host_tkeep), .s_tlast(s_host_tlast), .s_tuser(s_host_tdest),
        .s_tvalid(s_host_tvalid), .s_tready(s_host_tready), .m_tdata(out_tdata), .m_tkeep(out_tkeep), .m_tlast(out_tlast),
        .m_tuser(out_tdest), .m_tvalid(out_tvalid), .m_tready(out_tready),
        .has_room(from_host_room), .event_dropped(event_giant)
    );

    // A frame for a port that is not there is dropped.
    assign reply_tready = 32'(reply_tdest) >= PORTS || tx_reply_ready[INDEX_W'(reply_tdest)];
    assign out_tready   = 32'(out_tdest) >= PORTS || tx_host_ready[INDEX_W'(out_tdest)];

    for (genvar i = 0; i < PORTS; i++) begin : gen_tx
        multimqc_tx #(.PORT_BITS(PORT_BITS)) tx (
            .clk, .rst,
            .s_reply_tdata(reply_tdata), .s_reply_tkeep(reply_tkeep), .s_reply_tlast(reply_tlast),
            .s_reply_tvalid(reply_tvalid && reply_tdest == PORT_W'(i)), .s_reply_tready(tx_reply_ready[i]),
            .s_host_tdata(out_tdata), .s_host_tkeep(out_tkeep), .s_host_tlast(out_tlast),
            .s_host_tvalid(out_tvalid && out_tdest == PORT_W'(i)), .s_host_tready(tx_host_ready[i]),
            .m_tdata(m_port_tdata[i*PORT_BITS +: PORT_BITS]), .m_tkeep(m_port_tkeep[i*PORT_BYTES +: PORT_BYTES]), .m_tlast(m_port_tlast[i]),
            .m_tvalid(m_port_tvalid[i]), .m_tready(m_port_tready[i]),
            .event_dropped(event_tx_dropped[i]), .event_sent(event_sent[i])
        );
    end
endmodule
