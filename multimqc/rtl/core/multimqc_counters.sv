// Counts per topic, port and kind: how often, and how many bytes. One event in each clock; memory for all of it.
//
// An event reads its two numbers in one clock and writes them in the next; an event of the same address right behind it takes
// them from there.
module multimqc_counters #(
    parameter int TOPICS = 4,
    parameter int PORTS  = 4,
    parameter int TOPIC_A = TOPICS > 1 ? $clog2(TOPICS) : 1,
    parameter int PORT_A  = PORTS > 1 ? $clog2(PORTS) : 1,
    parameter int A       = TOPIC_A + PORT_A + multimqc_pkg::COUNT_W
) (
    input  logic         clk,
    input  logic         rst,
    output logic         ready,         // memory is cleared after a reset

    // {kind, topic, port, bytes}. The first goes before the second, and never waits.
    input  logic         s_frame_valid,
    input  logic [31:0]  s_frame_data,
    input  logic         s_pull_valid,
    input  logic [31:0]  s_pull_data,
    output logic         s_pull_ready,

    input  logic         read,
    input  logic [A-1:0] read_address,  // {topic, port, kind}
    output logic [127:0] read_data      // {bytes, count}, one clock later
);
    logic [A:0] cleared;
    assign ready = cleared[A];
    assign s_pull_ready = !s_frame_valid && ready;

    wire        take = ready && (s_frame_valid || s_pull_valid);
    wire [31:0] event_data = s_frame_valid ? s_frame_data : s_pull_data;
    wire [A-1:0] address = {event_data[20 +: TOPIC_A], event_data[16 +: PORT_A], event_data[28 +: multimqc_pkg::COUNT_W]};

    logic         valid1, same1;
    logic [A-1:0] address1;
    logic [15:0]  bytes1;
    logic [127:0] old, sum, last_sum;

    wire [127:0] base = same1 ? last_sum : old;
    assign sum = {base[127:64] + 64'(bytes1), base[63:0] + 64'd1};

    always_ff @(posedge clk) begin
        valid1   <= take;
        address1 <= address;
        bytes1   <= event_data[15:0];
        same1    <= valid1 && address == address1;
        last_sum <= sum;
        if (!ready) cleared <= cleared + 1'b1;
        if (rst) begin
            valid1  <= 1'b0;
            cleared <= '0;
        end
    end

    // One copy for each reader.
    wire         write = valid1 || !ready;
    wire [A-1:0] write_address = ready ? address1 : cleared[A-1:0];
    wire [127:0] write_data = ready ? sum : '0;

    multimqc_ram #(.WIDTH(128), .DEPTH(1 << A)) events (
        .clk, .write, .write_address, .write_data, .read(take), .read_address(address), .read_data(old)
    );
    multimqc_ram #(.WIDTH(128), .DEPTH(1 << A)) shown (
        .clk, .write, .write_address, .write_data, .read, .read_address, .read_data
    );
endmodule
