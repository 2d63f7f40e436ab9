// Sums up the words of 16 bits of a frame, a beat in each clock, for the checksums of IP and UDP.
//
// The sum has a beat two clocks after it came, or four if a beat has 64 bytes: then one clock is for the choice of the bytes, before
// they come here, and one more for the sum of eight sums.
module multimqc_frame_sum #(
    parameter int BYTES = 8   // of a beat: 8 or 64
) (
    input  logic               clk,
    input  logic [BYTES*8-1:0] s_bytes,   // 0 where a byte does not count
    input  logic               s_first,   // of its frame
    input  logic               s_valid,
    output logic [31:0]        m_sum
);
    localparam int QUADS = BYTES / 8;
    localparam bit WIDE  = QUADS > 1;

    logic [BYTES*8-1:0] bytes;
    multimqc_delay #(.WIDTH(BYTES * 8), .CLOCKS(WIDE ? 1 : 0)) chosen (.clk, .s_data(s_bytes), .m_data(bytes));

    // Sums of four words each.
    logic [QUADS*18-1:0] quads;

    always_ff @(posedge clk) begin
        for (int i = 0; i < QUADS; i++) begin
            quads[i*18 +: 18] <= 18'(bytes[i*64 +: 16]) + 18'(bytes[i*64+16 +: 16]) + 18'(bytes[i*64+32 +: 16]) + 18'(bytes[i*64+48 +: 16]);
        end
    end

    logic [20:0] beat_now, beat;

    always_comb begin
        beat_now = '0;
        for (int i = 0; i < QUADS; i++) beat_now = beat_now + 21'(quads[i*18 +: 18]);
    end

    multimqc_delay #(.WIDTH(21), .CLOCKS(WIDE ? 1 : 0)) beats (.clk, .s_data(beat_now), .m_data(beat));

    logic first, valid;
    multimqc_delay #(.WIDTH(2), .CLOCKS(WIDE ? 3 : 1)) flags (.clk, .s_data({s_first, s_valid}), .m_data({first, valid}));

    always_ff @(posedge clk) if (valid) m_sum <= (first ? 32'd0 : m_sum) + 32'(beat);
endmodule
