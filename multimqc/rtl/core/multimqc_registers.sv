// The NIC's settings and counters, over AXI-Lite with 32 bits. One access at a time. The map is in multimqc/rtl/README.md.
module multimqc_registers #(
    parameter int TOPICS = 4,
    parameter int PORTS  = 4,
    parameter int COUNTER_A = 8,   // {topic, port, kind}
    parameter int PORT_BYTES = 8,  // of a port's beat
    parameter int CLOCK_KHZ = 156250
) (
    input  logic                 clk,
    input  logic                 rst,

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

    output logic [1:0]           cfg_levels,
    output logic [15:0]          cfg_header_port,
    output logic [15:0]          cfg_max_message,
    output logic [15:0]          cfg_max_reply,
    output logic [31:0]          cfg_trusted_network,
    output logic [31:0]          cfg_trusted_mask,
    output logic [15:0]          cfg_batch_bytes,
    output logic [31:0]          cfg_batch_age,
    output logic [95:0]          cfg_batch_macs,
    output logic [63:0]          cfg_batch_addresses,
    output logic [31:0]          cfg_batch_ports,
    output logic [31:0]          cfg_batch_cookie,
    output logic                 cfg_flush,
    output logic [TOPICS-1:0]    cfg_open,
    output logic [TOPICS*16-1:0] cfg_id,
    output logic [TOPICS*16-1:0] cfg_push_port,
    output logic [TOPICS*16-1:0] cfg_pull_port,
    output logic [TOPICS*32-1:0] cfg_epoch,
    output logic [TOPICS*2-1:0]  cfg_input,   // input and output functions
    output logic [TOPICS*2-1:0]  cfg_output,
    output logic                 cfg_open_valid,
    output logic [7:0]           cfg_open_topic,
    output logic [63:0]          cfg_open_offset,

    // For one clock each.
    input  logic [PORTS-1:0]     event_received,
    input  logic [PORTS-1:0]     event_overrun,
    input  logic [PORTS-1:0]     event_broken,
    input  logic [PORTS-1:0]     event_sent,
    input  logic [PORTS-1:0]     event_tx_dropped,
    input  logic                 event_host_dropped,

    // Counters of the front end, one clock later; of the store, two.
    output logic                 counter_read,
    output logic [COUNTER_A-1:0] counter_address,
    input  logic [127:0]         counter_data,
    output logic [7:0]           stat_topic,
    output logic [3:0]           stat_index,
    input  logic [63:0]          stat_value
);
    localparam int PORT_A = PORTS > 1 ? $clog2(PORTS) : 1;
    localparam int TOPIC_A = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int PORT_EVENTS = 5;

    // --- Writes ------------------------------------------------------------------------------
    wire        write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid;
    wire [31:0] value = s_axil_wdata;
    wire        global_write = write && s_axil_awaddr[23:8] == 16'd0;
    wire        topic_write  = write && s_axil_awaddr[23:13] == 11'd1;
    wire [7:0]  topic = s_axil_awaddr[12:5];
    logic [63:0] next_offset;

    assign s_axil_awready = write;
    assign s_axil_wready  = write;
    assign s_axil_bresp   = 2'b00;

    always_ff @(posedge clk) begin
        cfg_open_valid <= 1'b0;
        if (write) s_axil_bvalid <= 1'b1;
        else if (s_axil_bready) s_axil_bvalid <= 1'b0;
        if (global_write) begin
            case (s_axil_awaddr[7:2])
                6'h02: cfg_levels <= value[1:0];
                6'h03: cfg_header_port <= value[15:0];
                6'h04: cfg_max_message <= value[15:0];
                6'h05: cfg_max_reply <= value[15:0];
                6'h06: cfg_trusted_network <= value;
                6'h07: cfg_trusted_mask <= value;
                6'h08: cfg_batch_bytes <= value[15:0];
                6'h09: cfg_batch_age <= value;
                6'h0a: cfg_flush <= value[0];
                6'h10: cfg_batch_macs[31:0] <= value;
                6'h11: cfg_batch_macs[63:32] <= value;
                6'h12: cfg_batch_macs[95:64] <= value;
                6'h13: cfg_batch_addresses[31:0] <= value;
                6'h14: cfg_batch_addresses[63:32] <= value;
                6'h15: cfg_batch_ports <= value;
                6'h16: cfg_batch_cookie <= value;
                default: ;
            endcase
        end
        if (topic_write) begin
            for (int i = 0; i < TOPICS; i++) begin
                if (topic == 8'(i)) begin
                    case (s_axil_awaddr[4:2])
                        3'd0: cfg_open[i] <= value[0];
                        3'd1: cfg_id[i*16 +: 16] <= value[15:0];
                        3'd2: cfg_push_port[i*16 +: 16] <= value[15:0];
                        3'd3: cfg_pull_port[i*16 +: 16] <= value[15:0];
                        3'd4: cfg_epoch[i*32 +: 32] <= value;
                        3'd7: begin
                            cfg_input[i*2 +: 2]  <= value[1:0];
                            cfg_output[i*2 +: 2] <= value[5:4];
                        end
                        default: ;
                    endcase
                end
            end
            case (s_axil_awaddr[4:2])
                3'd5: next_offset[31:0] <= value;
                3'd6: begin
                    cfg_open_valid  <= 32'(topic) < TOPICS;
                    cfg_open_topic  <= topic;
                    cfg_open_offset <= {value, next_offset[31:0]};
                end
                default: ;
            endcase
        end
        if (rst) begin
            s_axil_bvalid       <= 1'b0;
            cfg_levels          <= 2'b11;
            cfg_header_port     <= 16'd19997;
            cfg_max_message     <= 16'(multimqc_pkg::MAX_MESSAGE_BYTES);
            cfg_max_reply       <= 16'(multimqc_pkg::MAX_REPLY_BYTES);
            // Nobody: no address has bits outside of its mask.
            cfg_trusted_network <= 32'd1;
            cfg_trusted_mask    <= 32'd0;
            cfg_batch_bytes     <= 16'(multimqc_pkg::BATCH_MAX_BYTES);
            cfg_batch_age       <= 32'(CLOCK_KHZ);  // a millisecond
            cfg_batch_macs      <= '0;
            cfg_batch_addresses <= '0;
            cfg_batch_ports     <= '0;
            cfg_batch_cookie    <= '0;
            cfg_open            <= '0;
            cfg_id              <= '0;
            cfg_push_port       <= '0;
            cfg_pull_port       <= '0;
            cfg_epoch           <= '0;
            cfg_input           <= '0;
            cfg_output          <= '0;
            cfg_open_valid      <= 1'b0;
            cfg_flush           <= 1'b0;
        end
    end

    // --- What is counted per port ---------------------------------------------------------------
    logic [PORTS*PORT_EVENTS*32-1:0] port_counts;
    logic [31:0]                     host_dropped;
    wire  [PORTS*PORT_EVENTS-1:0]    port_events = {event_tx_dropped, event_sent, event_broken, event_overrun, event_received};

    always_ff @(posedge clk) begin
        for (int i = 0; i < PORTS * PORT_EVENTS; i++) begin
            if (port_events[i]) port_counts[i*32 +: 32] <= port_counts[i*32 +: 32] + 1'b1;
        end
        if (event_host_dropped) host_dropped <= host_dropped + 1'b1;
        if (rst) begin
            port_counts  <= '0;
            host_dropped <= '0;
        end
    end

    // --- Reads: four clocks --------------------------------------------------------------------------
    logic [23:0] address;
    logic [2:0]  step;    // 0: idle
    logic [31:0] found;

    assign s_axil_arready  = step == 3'd0 && !s_axil_rvalid;
    assign s_axil_rresp    = 2'b00;
    // 0x800000: {topic, port, kind} of 16 bytes each, as numbers of 8, 4 and 4 bits above them.
    assign counter_read    = step == 3'd1;
    assign counter_address = {address[12 +: TOPIC_A], address[8 +: PORT_A], address[7:4]};
    assign stat_topic      = address[14:7];
    assign stat_index      = address[6:3];

    always_comb begin
        found = 32'd0;
        if (address[23]) found = counter_data[address[3:2]*32 +: 32];
        else if (address[22]) found = address[2] ? stat_value[63:32] : stat_value[31:0];
        else if (address[23:8] == 16'd0) begin
            case (address[7:2])
                6'h00: found = 32'h4d514e31;  // "MQN1"
                6'h01: found = {8'(PORT_BYTES), 8'(PORTS), 16'(TOPICS)};
                6'h02: found = {30'd0, cfg_levels};
                6'h03: found = {16'd0, cfg_header_port};
                6'h04: found = {16'd0, cfg_max_message};
                6'h05: found = {16'd0, cfg_max_reply};
                6'h06: found = cfg_trusted_network;
                6'h07: found = cfg_trusted_mask;
                6'h08: found = {16'd0, cfg_batch_bytes};
                6'h09: found = cfg_batch_age;
                6'h0b: found = 32'(CLOCK_KHZ);
                6'h20: found = host_dropped;
                default: ;
            endcase
        end else if (address[23:9] == 15'd1) begin
            // 0x200: eight numbers for each port.
            for (int i = 0; i < PORTS; i++) begin
                for (int j = 0; j < PORT_EVENTS; j++) begin
                    if (address[8:5] == 4'(i) && address[4:2] == 3'(j)) found = port_counts[(j * PORTS + i) * 32 +: 32];
                end
            end
        end
    end

    always_ff @(posedge clk) begin
        if (s_axil_arvalid && s_axil_arready) begin
            address <= s_axil_araddr;
            step    <= 3'd1;
        end
        if (step != 3'd0) step <= step == 3'd4 ? 3'd0 : step + 1'b1;
        if (step == 3'd4) begin
            s_axil_rdata  <= found;
            s_axil_rvalid <= 1'b1;
        end else if (s_axil_rready) s_axil_rvalid <= 1'b0;
        if (rst) begin
            step          <= '0;
            s_axil_rvalid <= 1'b0;
        end
    end
endmodule
