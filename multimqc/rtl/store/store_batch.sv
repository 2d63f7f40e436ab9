// Batches for the host: ranges of the logs, each with its place. A hole is a batch without bytes, whose offset is the hole's end; the
// host sees the same from the offset of the next batch. A host that is slow loses the oldest bytes, never the order.
module store_batch #(
    parameter int TOPICS     = 8,
    parameter int SKIP_BYTES = 4096
) (
    input  logic                                  clk,
    input  logic                                  rst,
    input  logic [TOPICS*64-1:0]                  committed,
    input  logic                                  stored_valid,
    input  logic [7:0]                            stored_topic,
    input  logic                                  open_valid,
    input  logic [7:0]                            open_topic,
    input  logic [63:0]                           open_offset,
    input  logic [15:0]                           cfg_bytes,
    input  logic [31:0]                           cfg_age,
    input  logic                                  cfg_flush,
    output logic                                  job_valid,
    input  logic                                  job_ready,
    output logic [7:0]                            job_topic,
    output logic [63:0]                           job_offset,
    output logic [15:0]                           job_length,
    input  logic                                  decided,
    input  logic                                  decided_hit,
    input  logic [63:0]                           decided_floor,
    input  logic [63:0]                           decided_committed,
    input  logic                                  s_valid,
    output logic                                  s_ready,
    input  logic [512:0]                          s_data,
    output logic [511:0]                          m_batch_tdata,
    output logic [63:0]                           m_batch_tkeep,
    output logic                                  m_batch_tlast,
    output logic [multimqc_pkg::BATCH_USER_W-1:0] m_batch_tuser,
    output logic                                  m_batch_tvalid,
    input  logic                                  m_batch_tready,
    output logic                                  hole_valid,
    output logic [7:0]                            hole_topic,
    output logic [63:0]                           hole_bytes
);
    logic event_range, event_void, event_hole;
    logic [7:0] event_topic;
    logic [63:0] event_offset, event_hole_bytes;
    logic [15:0] event_length;
    logic enable;

    // A size that cannot be read at once, or is less than a beat, is not taken as it is.
    logic [15:0] size;
    always_ff @(posedge clk) begin
        size <= cfg_bytes < 16'd64 ? 16'd64
            : cfg_bytes > 16'(multimqc_pkg::BATCH_MAX_BYTES) ? 16'(multimqc_pkg::BATCH_MAX_BYTES) : cfg_bytes;
    end

    store_transfer #(
        .TOPICS    (TOPICS),
        .ALIGN     (0),
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
        .size (size),
        .age  (cfg_age),
        .flush(cfg_flush),
        .enable,
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

    // --- Headers, one for each batch --------------------------------------------------

    localparam int HEADER_W = 1 + 8 + 64 + 16;
    logic header_valid, header_taken, header_void, header_ready;
    logic [7:0] topic;
    logic [63:0] offset;
    logic [15:0] length;

    multimqc_fifo #(
        .WIDTH(HEADER_W),
        .DEPTH(16)
    ) headers (
        .clk,
        .rst,
        .s_data ({event_void, event_topic, event_offset, event_length}),
        .s_valid(event_range || event_hole),
        .s_ready(header_ready),
        .m_data ({header_void, topic, offset, length}),
        .m_valid(header_valid),
        .m_ready(header_taken)
    );

    // The scheduler has one range at a time on its way: it may begin one if two more headers fit.
    logic [4:0] headers_in;
    always_ff @(posedge clk) begin
        headers_in <= headers_in + 5'(event_range || event_hole) - 5'(header_valid && header_taken);
        if (rst) headers_in <= '0;
    end
    assign enable = headers_in < 5'd14;

    assign hole_valid = event_hole;
    assign hole_topic = event_topic;
    assign hole_bytes = event_hole_bytes;

    // --- The stream --------------------------------------------------------------------

    logic [15:0] done;  // bytes of the batch that are sent
    wire [15:0] left = length - done;
    wire empty = length == 16'd0;
    wire last = empty || s_data[512];
    wire [6:0] bytes = left >= 16'd64 ? 7'd64 : left[6:0];
    wire moves = m_batch_tvalid && m_batch_tready;

    assign m_batch_tvalid = header_valid && !header_void && (empty || s_valid);
    assign m_batch_tdata  = s_data[511:0];
    assign m_batch_tkeep  = multimqc_pkg::keep_of(bytes);
    assign m_batch_tlast  = last;
    assign m_batch_tuser  = {topic, offset, length};
    assign s_ready        = header_valid && !empty && (header_void || m_batch_tready);
    assign header_taken   = header_void ? (empty || (s_valid && last)) : moves && last;

    always_ff @(posedge clk) begin
        if (moves) done <= last ? 16'd0 : done + 16'd64;
        if (rst) done <= '0;
    end
    wire unused = &{1'b0, header_ready};
endmodule
