// The store, with a model of DRAM behind its level 2, for tests.
module store_tb #(
    parameter int TOPICS = 4,
    parameter int LEVEL1_BYTES = 8192,
    parameter int LEVEL2_BYTES = 0,
    parameter int RINGS = 1,
    parameter int STALL = 0
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
    input  logic [7:0]                               stat_topic,
    input  logic [3:0]                               stat_index,
    output logic [63:0]                              stat_value,
    input  logic                                     fail_write,
    input  logic                                     fail_read
);
    localparam int ADDR_W = 34;
    logic [ADDR_W-1:0] m_axi_awaddr, m_axi_araddr;
    logic [7:0] m_axi_awlen, m_axi_arlen;
    logic [2:0] m_axi_awsize, m_axi_arsize;
    logic [1:0] m_axi_awburst, m_axi_arburst, m_axi_bresp, m_axi_rresp;
    logic m_axi_awvalid, m_axi_awready, m_axi_wvalid, m_axi_wready, m_axi_wlast, m_axi_bvalid, m_axi_bready;
    logic m_axi_arvalid, m_axi_arready, m_axi_rvalid, m_axi_rready, m_axi_rlast;
    logic [511:0] m_axi_wdata, m_axi_rdata;
    logic [63:0] m_axi_wstrb;
    logic [31:0] row_hits, row_misses, turns, refreshes;

    ddr4_model #(
        .BYTES (LEVEL2_BYTES == 0 ? 8192 : TOPICS * LEVEL2_BYTES),
        .ADDR_W(ADDR_W),
        .STALL (STALL)
    ) dram (
        .clk,
        .rst,
        .fail_write,
        .fail_read,
        .awaddr (m_axi_awaddr),
        .awlen  (m_axi_awlen),
        .awvalid(m_axi_awvalid),
        .awready(m_axi_awready),
        .wdata  (m_axi_wdata),
        .wstrb  (m_axi_wstrb),
        .wlast  (m_axi_wlast),
        .wvalid (m_axi_wvalid),
        .wready (m_axi_wready),
        .bresp  (m_axi_bresp),
        .bvalid (m_axi_bvalid),
        .bready (m_axi_bready),
        .araddr (m_axi_araddr),
        .arlen  (m_axi_arlen),
        .arvalid(m_axi_arvalid),
        .arready(m_axi_arready),
        .rdata  (m_axi_rdata),
        .rresp  (m_axi_rresp),
        .rlast  (m_axi_rlast),
        .rvalid (m_axi_rvalid),
        .rready (m_axi_rready),
        .row_hits,
        .row_misses,
        .turns,
        .refreshes
    );

    multimqc_store #(
        .TOPICS      (TOPICS),
        .LEVEL1_BYTES(LEVEL1_BYTES),
        .LEVEL2_BYTES(LEVEL2_BYTES),
        // 100 GbE at 322.27 MHz, for which there are two rings.
        .BYTES_PER_CLOCK(RINGS == 2 ? 39 : 32),
        .RINGS       (RINGS)
    ) store (
        .*
    );
endmodule
