// Makes the header of each batch, which is a datagram of the header form to the host.
module multimqc_batch #(
    parameter int TOPICS   = 4
) (
    input  logic                                  clk,
    input  logic                                  rst,
    input  logic [TOPICS*16-1:0]                  cfg_id,
    input  logic [TOPICS*32-1:0]                  cfg_epoch,
    input  logic [95:0]                           cfg_batch_macs,       // to, from: as in a frame
    input  logic [63:0]                           cfg_batch_addresses,  // IPv4: from, to
    input  logic [31:0]                           cfg_batch_ports,      // from, to: as in a frame
    input  logic [31:0]                           cfg_batch_cookie,

    input  logic [511:0]                          s_tdata,
    input  logic [63:0]                           s_tkeep,
    input  logic                                  s_tlast,
    input  logic [multimqc_pkg::BATCH_USER_W-1:0] s_tuser,
    input  logic                                  s_tvalid,
    output logic                                  s_tready,

    output logic [multimqc_pkg::HEADER_W-1:0]                   m_header,
    output logic [511:0]                          m_tdata,
    output logic [63:0]                           m_tkeep,
    output logic                                  m_tlast,
    output logic                                  m_tvalid,
    input  logic                                  m_tready
);
    wire [multimqc_pkg::TOPIC_W-1:0] topic = s_tuser[multimqc_pkg::BATCH_TOPIC +: multimqc_pkg::TOPIC_W];

    logic [31:0] sequence_number;

    assign m_tdata  = s_tdata;
    assign m_tkeep  = s_tkeep;
    assign m_tlast  = s_tlast;
    assign m_tvalid = s_tvalid;
    assign s_tready = m_tready;
    assign m_header = {1'b0, {multimqc_pkg::SUM_W{1'b0}}, cfg_epoch[topic*32 +: 32], s_tuser[multimqc_pkg::BATCH_OFFSET +: 64], sequence_number, cfg_batch_cookie,
                       16'd0, cfg_id[topic*16 +: 16], multimqc_pkg::KIND_BATCH, cfg_batch_ports,
                       96'd0, cfg_batch_addresses[63:32], 96'd0, cfg_batch_addresses[31:0], cfg_batch_macs,
                       s_tuser[multimqc_pkg::BATCH_LENGTH +: 16], {multimqc_pkg::PORT_W{1'b0}}, 1'b1, 1'b0};

    always_ff @(posedge clk) begin
        if (s_tvalid && s_tready && s_tlast) sequence_number <= sequence_number + 1'b1;
        if (rst) sequence_number <= '0;
    end
endmodule
