// The levels of the NIC behind its front end: level 1 in block RAM, level 2 in DRAM, and batches for the host.
//
//   pushes ─▶ store_append ─▶ ring of each topic ◀─ store_read ◀──┬─ store_pull ◀─ read requests
//                                                        │        ├─ store_batch ─▶ batches
//                                                        │        └─ store_level2 ─▶ AXI4
//                                                        └─▶ bytes for these three
//
// Everything is read from the ring of level 1, which is never written later than it is asked to: pushes do not wait. A level that is
// left out (LEVEL2_BYTES 0, a bit of cfg_levels) answers nothing; the ring is still the way to the host and to level 2.
module multimqc_store #(
    parameter int TOPICS         = 8,
    parameter int LEVEL1_BYTES   = 16384,   // of each topic, a power of two
    parameter longint LEVEL2_BYTES = 1 << 29,  // of each topic, a power of two; 0: no level 2
    parameter int LEVEL2_BURST   = 512,     // bytes that are combined for one write
    parameter int LEVEL2_AGE     = 1024,    // clocks after which fewer are written
    parameter int LEVEL2_PREFETCH = 1,      // whether readers that go on where they ended are foreseen
    // Equation 1: bytes that can arrive in a clock (4 x 10 GbE at 156.25 MHz: 32), and the clocks from a burst's last byte to its
    // write response.
    parameter int BYTES_PER_CLOCK = 32,
    parameter int LEVEL2_LATENCY  = 250,
    // With 2, level 2 reads a copy of the rings: each byte is read for the host and for level 2, and one ring gives 64 bytes in a clock.
    parameter int RINGS           = 1,
    parameter int ADDR_W          = 34
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [511:0]                             s_push_tdata,
    input  logic [63:0]                              s_push_tkeep,
    input  logic                                     s_push_tlast,
    input  logic [multimqc_pkg::PUSH_USER_W-1:0]     s_push_tuser,
    input  logic                                     s_push_tvalid,
    output logic                                     s_push_tready,
    input  logic [multimqc_pkg::READ_REQUEST_W-1:0]  s_read_data,
    input  logic                                     s_read_valid,
    output logic                                     s_read_ready,
    output logic [511:0]                             m_response_tdata,
    output logic [63:0]                              m_response_tkeep,
    output logic                                     m_response_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] m_response_tuser,
    output logic                                     m_response_tvalid,
    input  logic                                     m_response_tready,
    output logic [511:0]                             m_batch_tdata,
    output logic [63:0]                              m_batch_tkeep,
    output logic                                     m_batch_tlast,
    output logic [multimqc_pkg::BATCH_USER_W-1:0]    m_batch_tuser,
    output logic                                     m_batch_tvalid,
    input  logic                                     m_batch_tready,
    input  logic                                     cfg_open_valid,
    input  logic [7:0]                               cfg_open_topic,
    input  logic [63:0]                              cfg_open_offset,
    input  logic [1:0]                               cfg_levels,
    input  logic [15:0]                              cfg_batch_bytes,
    input  logic [31:0]                              cfg_batch_age,
    input  logic                                     cfg_flush,
    // Counters: the value of `stat_index` of `stat_topic`, two clocks later.
    input  logic [7:0]                               stat_topic,
    input  logic [3:0]                               stat_index,
    output logic [63:0]                              stat_value,
    output logic [ADDR_W-1:0]                        m_axi_awaddr,
    output logic [7:0]                               m_axi_awlen,
    output logic [2:0]                               m_axi_awsize,
    output logic [1:0]                               m_axi_awburst,
    output logic                                     m_axi_awvalid,
    input  logic                                     m_axi_awready,
    output logic [511:0]                             m_axi_wdata,
    output logic [63:0]                              m_axi_wstrb,
    output logic                                     m_axi_wlast,
    output logic                                     m_axi_wvalid,
    input  logic                                     m_axi_wready,
    input  logic [1:0]                               m_axi_bresp,
    input  logic                                     m_axi_bvalid,
    output logic                                     m_axi_bready,
    output logic [ADDR_W-1:0]                        m_axi_araddr,
    output logic [7:0]                               m_axi_arlen,
    output logic [2:0]                               m_axi_arsize,
    output logic [1:0]                               m_axi_arburst,
    output logic                                     m_axi_arvalid,
    input  logic                                     m_axi_arready,
    input  logic [511:0]                             m_axi_rdata,
    input  logic [1:0]                               m_axi_rresp,
    input  logic                                     m_axi_rlast,
    input  logic                                     m_axi_rvalid,
    output logic                                     m_axi_rready
);
    localparam int ROWS = TOPICS * LEVEL1_BYTES / 64;
    localparam int ROW_W = $clog2(ROWS);
    // Bytes that can be overwritten between the decision on a read and its first beat; see store_read.
    localparam int GUARD_BYTES = 64 * 16;
    localparam int WINDOW = LEVEL1_BYTES - GUARD_BYTES;
    // After a hole, a reader goes on so far above the floor.
    localparam int SKIP_BYTES = LEVEL1_BYTES / 4;

    if (LEVEL2_BYTES != 0 && (LEVEL2_BYTES < 8192 || (64'd1 << $clog2(LEVEL2_BYTES)) != LEVEL2_BYTES)) begin : g_level2_bytes
        // An expression of 32 bits may have become negative.
        $error("multimqc_store: LEVEL2_BYTES is not 0 or a power of two of at least 8,192");
    end
    // Equation 1 of the paper, in clocks: latency < (capacity - (batch + overlap)) / throughput.
    if (LEVEL2_BYTES != 0 && LEVEL2_LATENCY * BYTES_PER_CLOCK >= WINDOW - (LEVEL2_BURST + multimqc_pkg::OVERLAP_BYTES))
    begin : g_equation_1
        $error("multimqc_store: equation 1 does not hold: a larger LEVEL1_BYTES or a smaller LEVEL2_BURST helps");
    end

    if (RINGS != 1 && RINGS != 2) begin : g_bad_rings
        $error("multimqc_store: RINGS is not 1 or 2");
    end

    // --- Level 1 --------------------------------------------------------------------

    logic [63:0] wr_enable, wr_later, rd_later;
    logic [ROW_W-1:0] wr_row, wr_next, rd_row, rd_next;
    logic [511:0] wr_data, rd_data;
    logic rd_enable;
    logic [TOPICS*64-1:0] committed, floors;
    logic stored_valid;
    logic [7:0] stored_topic;
    logic [15:0] stored_bytes;

    store_append #(
        .TOPICS     (TOPICS),
        .RING_BYTES (LEVEL1_BYTES),
        .GUARD_BYTES(GUARD_BYTES)
    ) append (
        .clk,
        .rst,
        .s_push_tdata,
        .s_push_tlast,
        .s_push_tuser,
        .s_push_tvalid,
        .s_push_tready,
        .cfg_open_valid,
        .cfg_open_topic,
        .cfg_open_offset,
        .wr_enable,
        .wr_later,
        .wr_row,
        .wr_next,
        .wr_data,
        .committed,
        .floors,
        .stored_valid,
        .stored_topic,
        .stored_bytes
    );

    store_ring #(
        .ROWS (ROWS),
        .ROW_W(ROW_W)
    ) ring (
        .clk,
        .wr_enable,
        .wr_later,
        .wr_row,
        .wr_next,
        .wr_data,
        .rd_enable,
        .rd_later,
        .rd_row,
        .rd_next,
        .rd_data
    );

    logic rd_tail, rd_first, sum_valid;
    logic [5:0] rd_begin, rd_end;
    logic [15:0] sum;

    store_sums #(
        .TOPICS(TOPICS),
        .ROWS  (ROWS),
        .ROW_W (ROW_W)
    ) sums (
        .clk,
        .rst,
        .wr_enable,
        .wr_later,
        .wr_topic(stored_topic),
        .wr_next,
        .wr_data,
        .rd_tail,
        .rd_first,
        .rd_begin,
        .rd_end,
        .rd_row,
        .rd_next,
        .rd_data,
        .sum_valid,
        .sum
    );

    logic [2:0] job_valid, job_ready, decided, bytes_valid, bytes_ready;
    logic [3*97-1:0] job_data;
    logic [3*513-1:0] bytes_data;
    logic decided_hit, decided_end, decided_miss, decided_summed;
    logic [7:0] decided_tag, decided_topic;
    logic [63:0] decided_offset, decided_floor, decided_committed;
    logic [15:0] decided_length;

    store_read #(
        .TOPICS     (TOPICS),
        .RING_BYTES (LEVEL1_BYTES),
        .GUARD_BYTES(GUARD_BYTES),
        .FIFO_BEATS (64)
    ) read (
        .clk,
        .rst,
        .committed,
        .floors,
        .job_valid(RINGS == 1 ? job_valid : job_valid & 3'b011),
        .job_ready,
        .job_data,
        .decided,
        .decided_hit,
        .decided_end,
        .decided_miss,
        .decided_summed,
        .decided_tag,
        .decided_topic,
        .decided_offset,
        .decided_length,
        .decided_floor,
        .decided_committed,
        .rd_enable,
        .rd_later,
        .rd_row,
        .rd_next,
        .rd_data,
        .rd_tail,
        .rd_first,
        .rd_begin,
        .rd_end,
        .m_valid(bytes_valid),
        .m_ready(bytes_ready),
        .m_data (bytes_data)
    );

    // --- What level 2 reads: the same rings, or a copy ------------------------------

    logic copied_taken, copied_decided, copied_hit, copied_valid;
    logic [63:0] copied_floor, copied_committed;
    logic [512:0] copied_bytes;

    if (RINGS == 1) begin : g_one_ring
        assign copied_taken     = job_ready[2];
        assign copied_decided   = decided[2];
        assign copied_hit       = decided_hit;
        assign copied_floor     = decided_floor;
        assign copied_committed = decided_committed;
        assign copied_valid     = bytes_valid[2];
        assign copied_bytes     = bytes_data[2*513+:513];
    end else begin : g_two_rings
`ifdef PLANTED
        // A bug that the tests must catch, switched on by a plusarg of its name.
        logic BUG_COPY;
        initial BUG_COPY = $test$plusargs("BUG_COPY") != 0;
`else
        localparam logic BUG_COPY = 1'b0;
`endif
        logic [2:0] copy_ready, copy_decided, copy_valid;
        logic [3*513-1:0] copy_bytes;
        logic copy_enable;
        logic [63:0] copy_later;
        logic [ROW_W-1:0] copy_row, copy_next;
        logic [511:0] copy_data;
        logic copy_decided_end;
        logic copy_decided_miss;
        logic [7:0] copy_decided_tag;
        logic [7:0] copy_decided_topic;
        logic [63:0] copy_decided_offset;
        logic [15:0] copy_decided_length;
        logic copy_summed, copy_tail, copy_first;
        logic [5:0] copy_begin, copy_end;

        store_ring #(
            .ROWS (ROWS),
            .ROW_W(ROW_W)
        ) ring (
            .clk,
            .wr_enable,
            .wr_later (wr_later & ~{64{BUG_COPY}}),
            .wr_row,
            .wr_next,
            .wr_data,
            .rd_enable(copy_enable),
            .rd_later (copy_later),
            .rd_row   (copy_row),
            .rd_next  (copy_next),
            .rd_data  (copy_data)
        );

        store_read #(
            .TOPICS     (TOPICS),
            .RING_BYTES (LEVEL1_BYTES),
            .GUARD_BYTES(GUARD_BYTES),
            .FIFO_BEATS (64)
        ) read (
            .clk,
            .rst,
            .committed,
            .floors,
            .job_valid        (job_valid & 3'b100),
            .job_ready        (copy_ready),
            .job_data,
            .decided          (copy_decided),
            .decided_hit      (copied_hit),
            .decided_floor    (copied_floor),
            .decided_committed(copied_committed),
            .decided_end      (copy_decided_end),
            .decided_miss     (copy_decided_miss),
            .decided_tag      (copy_decided_tag),
            .decided_topic    (copy_decided_topic),
            .decided_offset   (copy_decided_offset),
            .decided_length   (copy_decided_length),
            .decided_summed   (copy_summed),
            .rd_tail          (copy_tail),
            .rd_first         (copy_first),
            .rd_begin         (copy_begin),
            .rd_end           (copy_end),
            .rd_enable        (copy_enable),
            .rd_later         (copy_later),
            .rd_row           (copy_row),
            .rd_next          (copy_next),
            .rd_data          (copy_data),
            .m_valid          (copy_valid),
            .m_ready          (bytes_ready & 3'b100),
            .m_data           (copy_bytes)
        );

        assign copied_taken   = copy_ready[2];
        assign copied_decided = copy_decided[2];
        assign copied_valid   = copy_valid[2];
        assign copied_bytes   = copy_bytes[2*513+:513];
        wire unused_copy = &{1'b0, copy_ready[1:0], copy_decided[1:0], copy_valid[1:0], copy_bytes[0+:2*513], copy_decided_end, copy_decided_miss,
                             copy_decided_tag, copy_decided_topic, copy_decided_offset, copy_decided_length, copy_summed, copy_tail, copy_first, copy_begin,
                             copy_end};
        wire unused_first = &{1'b0, job_ready[2], decided[2], bytes_valid[2], bytes_data[2*513+:513]};
    end

    // --- Pulls ----------------------------------------------------------------------

    logic level2_valid, level2_ready;
    logic [96:0] level2_data;
    logic [511:0] level2_tdata;
    logic [63:0] level2_tkeep;
    logic level2_tlast, level2_tvalid, level2_tready;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] level2_tuser;

    store_pull #(
        .LEVEL2(LEVEL2_BYTES != 0 ? 1 : 0),
        .PULLS (64)
    ) pull (
        .clk,
        .rst,
        .cfg_levels,
        .s_read_data,
        .s_read_valid,
        .s_read_ready,
        .job_valid      (job_valid[0]),
        .job_ready      (job_ready[0]),
        .job_data       (job_data[0+:97]),
        .decided        (decided[0]),
        .decided_hit,
        .decided_end,
        .decided_miss,
        .decided_summed,
        .decided_tag,
        .decided_topic,
        .decided_offset,
        .decided_length,
        .decided_committed,
        .s_valid        (bytes_valid[0]),
        .s_ready        (bytes_ready[0]),
        .s_data         (bytes_data[0+:513]),
        .sum_valid,
        .sum,
        .level2_valid,
        .level2_data,
        .level2_ready,
        .s_level2_tdata (level2_tdata),
        .s_level2_tkeep (level2_tkeep),
        .s_level2_tlast (level2_tlast),
        .s_level2_tuser (level2_tuser),
        .s_level2_tvalid(level2_tvalid),
        .s_level2_tready(level2_tready),
        .m_response_tdata,
        .m_response_tkeep,
        .m_response_tlast,
        .m_response_tuser,
        .m_response_tvalid,
        .m_response_tready
    );

    // --- Batches --------------------------------------------------------------------

    logic hole_valid;
    logic [7:0] hole_topic, batch_topic;
    logic [63:0] hole_bytes, batch_offset;
    logic [15:0] batch_length;

    store_batch #(
        .TOPICS    (TOPICS),
        .SKIP_BYTES(SKIP_BYTES)
    ) batch (
        .clk,
        .rst,
        .committed,
        .stored_valid,
        .stored_topic,
        .open_valid (cfg_open_valid),
        .open_topic (cfg_open_topic),
        .open_offset(cfg_open_offset),
        .cfg_bytes  (cfg_batch_bytes),
        .cfg_age    (cfg_batch_age),
        .cfg_flush,
        .job_valid  (job_valid[1]),
        .job_ready  (job_ready[1]),
        .job_topic  (batch_topic),
        .job_offset (batch_offset),
        .job_length (batch_length),
        .decided    (decided[1]),
        .decided_hit,
        .decided_floor,
        .decided_committed,
        .s_valid    (bytes_valid[1]),
        .s_ready    (bytes_ready[1]),
        .s_data     (bytes_data[513+:513]),
        .m_batch_tdata,
        .m_batch_tkeep,
        .m_batch_tlast,
        .m_batch_tuser,
        .m_batch_tvalid,
        .m_batch_tready,
        .hole_valid,
        .hole_topic,
        .hole_bytes
    );
    assign job_data[97+:97] = {1'b0, 8'd0, batch_topic, batch_offset, batch_length};

    localparam int KINDS = 12;
    logic [KINDS-1:0] count_valid;
    logic [KINDS*8-1:0] count_topic;
    logic [KINDS*64-1:0] count_amount, count_value;

    // --- Level 2 --------------------------------------------------------------------

    if (LEVEL2_BYTES == 0) begin : g_no_level2
        assign job_valid[2]       = 1'b0;
        assign job_data[2*97+:97] = '0;
        assign bytes_ready[2]     = 1'b0;
        assign level2_ready       = 1'b0;
        assign level2_tdata       = '0;
        assign level2_tkeep       = '0;
        assign level2_tlast       = 1'b0;
        assign level2_tuser       = '0;
        assign level2_tvalid      = 1'b0;
        assign count_valid[11:8]    = '0;
        assign count_topic[95:64]   = '0;
        assign count_amount[767:512] = '0;
        assign m_axi_awaddr       = '0;
        assign m_axi_awlen        = '0;
        assign m_axi_awvalid      = 1'b0;
        assign m_axi_wdata        = '0;
        assign m_axi_wstrb        = '0;
        assign m_axi_wlast        = 1'b0;
        assign m_axi_wvalid       = 1'b0;
        assign m_axi_bready       = 1'b0;
        assign m_axi_araddr       = '0;
        assign m_axi_arlen        = '0;
        assign m_axi_arvalid      = 1'b0;
        assign m_axi_rready       = 1'b0;
        wire unused_axi = &{1'b0, m_axi_awready, m_axi_wready, m_axi_bresp, m_axi_bvalid, m_axi_arready, m_axi_rdata, m_axi_rresp,
                            m_axi_rlast, m_axi_rvalid, copied_taken, copied_decided, copied_valid, copied_bytes, copied_hit, copied_floor,
                            copied_committed, level2_valid, level2_data, level2_tready};
    end
    else begin : g_level2
        logic [TOPICS*64-1:0] written, level2_floors;
        logic [TOPICS*2-1:0] generations;
        logic [7:0] write_topic, lost_topic, hit_topic;
        logic [63:0] write_offset, lost_bytes;
        logic [15:0] write_length;
        logic lost_valid, hit_valid, hit_prefetched;

        store_level2_write #(
            .TOPICS    (TOPICS),
            .RING_BYTES(LEVEL2_BYTES),
            .BURST     (LEVEL2_BURST),
            .AGE       (LEVEL2_AGE),
            .SKIP_BYTES(SKIP_BYTES),
            .ADDR_W    (ADDR_W)
        ) level2_write (
            .clk,
            .rst,
            .committed,
            .stored_valid,
            .stored_topic,
            .open_valid (cfg_open_valid),
            .open_topic (cfg_open_topic),
            .open_offset(cfg_open_offset),
            .flush      (cfg_flush),
            .job_valid  (job_valid[2]),
            .job_ready  (copied_taken),
            .job_topic  (write_topic),
            .job_offset (write_offset),
            .job_length (write_length),
            .decided    (copied_decided),
            .decided_hit      (copied_hit),
            .decided_floor    (copied_floor),
            .decided_committed(copied_committed),
            .s_valid    (copied_valid),
            .s_ready    (bytes_ready[2]),
            .s_data     (copied_bytes),
            .written,
            .floors     (level2_floors),
            .generations,
            .hole_valid (lost_valid),
            .hole_topic (lost_topic),
            .hole_bytes (lost_bytes),
            .m_axi_awaddr,
            .m_axi_awlen,
            .m_axi_awvalid,
            .m_axi_awready,
            .m_axi_wdata,
            .m_axi_wstrb,
            .m_axi_wlast,
            .m_axi_wvalid,
            .m_axi_wready,
            .m_axi_bresp,
            .m_axi_bvalid,
            .m_axi_bready
        );
        assign job_data[2*97+:97] = {1'b0, 8'd0, write_topic, write_offset, write_length};

        store_level2_read #(
            .TOPICS    (TOPICS),
            .RING_BYTES(LEVEL2_BYTES),
            .PREFETCH  (LEVEL2_PREFETCH),
            .ADDR_W    (ADDR_W)
        ) level2_read (
            .clk,
            .rst,
            .written,
            .floors    (level2_floors),
            .generations,
            .open_valid(cfg_open_valid),
            .open_topic(cfg_open_topic),
            .s_valid   (level2_valid),
            .s_ready   (level2_ready),
            .s_data    (level2_data),
            .m_axi_araddr,
            .m_axi_arlen,
            .m_axi_arvalid,
            .m_axi_arready,
            .m_axi_rdata,
            .m_axi_rresp,
            .m_axi_rvalid,
            .m_axi_rready,
            .m_tdata   (level2_tdata),
            .m_tkeep   (level2_tkeep),
            .m_tlast   (level2_tlast),
            .m_tuser   (level2_tuser),
            .m_tvalid  (level2_tvalid),
            .m_tready  (level2_tready),
            .hit_valid,
            .hit_topic,
            .hit_prefetched
        );

        assign count_valid[11:8]     = {lost_valid, lost_valid, hit_valid && hit_prefetched, hit_valid};
        assign count_topic[95:64]    = {lost_topic, lost_topic, hit_topic, hit_topic};
        assign count_amount[767:512] = {lost_bytes, 64'd1, 64'd1, 64'd1};
        wire unused_axi = &{1'b0, m_axi_rlast};
    end

    // 64 bytes a beat, in rising order.
    assign m_axi_awsize  = 3'd6;
    assign m_axi_awburst = 2'd1;
    assign m_axi_arsize  = 3'd6;
    assign m_axi_arburst = 2'd1;

    // --- Counters -------------------------------------------------------------------

    wire batch_ends = m_batch_tvalid && m_batch_tready && m_batch_tlast && m_batch_tkeep[0];

    // 0 messages, 1 their bytes, 2 batches, 3 holes in batches, 4 their bytes, 5 pulls that level 1 answered, 6 pulls at the end of
    // the log, 7 pulls that level 1 has passed on; of level 2: 8 pulls answered, 9 of these without the DRAM, 10 holes, 11 their bytes.
    assign count_valid[7:0] = {
        decided[0] && !decided_hit && (decided_miss || !decided_end),
        decided[0] && decided_end && !decided_miss,
        decided[0] && decided_hit,
        hole_valid,
        hole_valid,
        batch_ends,
        stored_valid,
        stored_valid
    };
    assign count_topic[63:0] = {
        {3{decided_topic}}, hole_topic, hole_topic, m_batch_tuser[multimqc_pkg::BATCH_TOPIC+:8], stored_topic, stored_topic
    };
    assign count_amount[511:0] = {
        64'd1, 64'd1, 64'd1, hole_bytes, 64'd1, 64'd1, {48'd0, stored_bytes}, 64'd1
    };

    for (genvar i = 0; i < KINDS; i++) begin : g_count
        store_counter #(
            .TOPICS(TOPICS)
        ) counter (
            .clk,
            .rst,
            .add_valid (count_valid[i]),
            .add_topic (count_topic[8*i+:8]),
            .add_amount(count_amount[64*i+:64]),
            .read_topic(stat_topic),
            .read_value(count_value[64*i+:64])
        );
    end

    logic [3:0] stat_index_before;
    always_ff @(posedge clk) begin
        stat_index_before <= stat_index;
        stat_value <= '0;
        for (int i = 0; i < KINDS; i++) if (stat_index_before == 4'(i)) stat_value <= count_value[64*i+:64];
    end
    wire unused = &{1'b0, s_push_tkeep};
endmodule
