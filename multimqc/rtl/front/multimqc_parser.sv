// Reads the headers of Ethernet frames, a beat of 64 or 512 bits in each clock, and sums up what their checksums cover.
//
// A frame's fields are there (`f_valid`) three clocks after its last beat of 64 bits, five after one of 512, for one clock. Frames may
// follow each other without a gap, at any length. A field means something only if the frame is long enough to have it: see
// `multimqc_classifier`.
//
//	bytes of a frame    0      14        34         42          (IPv4 without options)
//	                    | eth  | IPv4    | UDP      | payload
//	                    0      14        54         62          (IPv6 without extension headers)
//
// The bytes of a frame up to the fourth word of its payload are kept in `head`, at their places.
module multimqc_parser #(
    parameter int PORT_BITS = 64   // of a beat: 64 or 512
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [PORT_BITS-1:0]   s_tdata,
    input  logic [PORT_BITS/8-1:0] s_tkeep,
    input  logic                   s_tlast,
    input  logic                   s_tvalid,
    // The frame that ends two clocks after its last beat has no place, or is broken.
    input  logic                   s_dropped,

    output logic         f_valid,
    output logic [11:0]  f_length,      // bytes of the frame
    output logic         f_v6,
    output logic         f_datagram,    // UDP over IPv4 or IPv6, to one receiver, with a UDP header in this frame
    output logic         f_more,        // more fragments follow
    output logic [15:0]  f_ip_length,   // bytes from the UDP header on, as IP says
    output logic [31:0]  f_source,      // IPv4 only
    output logic [63:0]  f_udp,         // the UDP header, byte 0 lowest
    output logic [63:0]  f_word0,
    output logic [63:0]  f_word1,
    output logic [63:0]  f_word2,
    output logic [63:0]  f_word3,
    output logic [31:0]  f_udp_sum,     // of addresses and of the datagram; without protocol and length
    output logic [31:0]  f_ip_sum
);
    localparam logic [15:0] ETHERTYPE_V4 = 16'h0008;  // as in a beat: the first byte lowest
    localparam logic [15:0] ETHERTYPE_V6 = 16'hdd86;
    localparam logic [7:0]  UDP          = 8'd17;

    localparam int BYTES   = PORT_BITS / 8;
    localparam int LANE_W  = $clog2(BYTES);
    localparam int AT_W    = 14;              // of the place of a byte in a frame
    localparam int INDEX_W = AT_W - LANE_W;
    // Beats that begin before the end of the fourth word behind the headers of IPv6.
    localparam int HEAD_BYTES = 94;
    localparam int HEAD_BEATS = (HEAD_BYTES + BYTES - 1) / BYTES;
    // Where addresses begin, and with them what the UDP checksum covers.
    localparam int ADDRESSES_V4 = 26;
    localparam int ADDRESSES_V6 = 22;
    // The fields wait for the sums of a wide beat.
    localparam int MORE_CLOCKS = BYTES > 8 ? 2 : 0;

    if (PORT_BITS != 64 && PORT_BITS != 512) begin : gen_bad_bits
        $error("PORT_BITS must be 64 or 512");
    end

    // --- Clock 1: the beat in a register, with its number -----------------------
    logic [PORT_BITS-1:0] d1;
    logic [BYTES-1:0]     keep1;
    logic                 last1;
    logic                 valid1;
    logic [INDEX_W-1:0]   index1, s_index;
    logic                 v6;
    logic [AT_W-1:0]      finish4, finish6;   // the first byte behind the datagram

    // Whether byte `at` comes in a beat, and where.
    function automatic logic has(input logic [INDEX_W-1:0] index, input int at);
        has = 32'(index) == at / BYTES;
    endfunction

    function automatic logic [15:0] swapped(input logic [15:0] value);
        swapped = {value[7:0], value[15:8]};
    endfunction

    always_ff @(posedge clk) begin
        d1     <= s_tdata;
        keep1  <= s_tkeep;
        last1  <= s_tlast;
        valid1 <= s_tvalid;
        index1 <= s_index;
        if (s_tvalid) begin
            // Frames that are longer than the count are dropped by the buffer long before.
            s_index <= s_tlast ? '0 : s_index + 1'b1;
            // The end of the covered bytes is needed together with the beat.
            if (has(s_index, 12)) v6 <= s_tdata[12 % BYTES * 8 +: 16] == ETHERTYPE_V6;
            if (has(s_index, 16)) finish4 <= AT_W'(swapped(s_tdata[16 % BYTES * 8 +: 16])) + AT_W'(14);
            if (has(s_index, 18)) finish6 <= AT_W'(swapped(s_tdata[18 % BYTES * 8 +: 16])) + AT_W'(54);
        end
        if (rst) begin
            valid1  <= 1'b0;
            s_index <= '0;
        end
    end

    // --- Clock 2: the head with this beat, and the bytes that are summed up -----------
    logic [HEAD_BEATS*PORT_BITS-1:0] head;
    logic        last2;
    logic [11:0] length2;

    // Bytes that a beat has, from byte 0 on.
    function automatic logic [LANE_W:0] count_bytes(input logic [BYTES-1:0] keep);
        count_bytes = '0;
        for (int i = 0; i < BYTES; i++) begin
            if (keep[i] && (i == BYTES - 1 || !keep[(i + 1) % BYTES])) count_bytes = count_bytes | (LANE_W + 1)'(i + 1);
        end
    endfunction

    // The bytes that the UDP checksum covers: from the addresses to the end of the datagram.
    function automatic logic [PORT_BITS-1:0] covered(
        input logic [PORT_BITS-1:0] data, input logic [INDEX_W-1:0] index, input logic is_v6, input logic [AT_W-1:0] stop
    );
        logic after_start, before_end;
        for (int i = 0; i < BYTES; i++) begin
            after_start = {index, LANE_W'(i)} >= (is_v6 ? AT_W'(ADDRESSES_V6) : AT_W'(ADDRESSES_V4));
            before_end  = index < stop[AT_W-1:LANE_W] || (index == stop[AT_W-1:LANE_W] && LANE_W'(i) < stop[LANE_W-1:0]);
            covered[i*8 +: 8] = after_start && before_end ? data[i*8 +: 8] : 8'd0;
        end
    endfunction

    // The bytes of the IPv4 header, from 14 to 33.
    function automatic logic [PORT_BITS-1:0] ip_covered(input logic [PORT_BITS-1:0] data, input logic [INDEX_W-1:0] index);
        for (int i = 0; i < BYTES; i++) begin
            ip_covered[i*8 +: 8] = {index, LANE_W'(i)} >= AT_W'(14) && {index, LANE_W'(i)} < AT_W'(34) ? data[i*8 +: 8] : 8'd0;
        end
    endfunction

    always_ff @(posedge clk) begin
        last2   <= valid1 && last1;
        length2 <= 12'({index1, LANE_W'(0)}) + 12'(count_bytes(keep1));
        if (valid1) begin
            for (int i = 0; i < HEAD_BEATS; i++) if (32'(index1) == i) head[i*PORT_BITS +: PORT_BITS] <= d1;
        end
        if (rst) last2 <= 1'b0;
    end

    wire [PORT_BITS-1:0] udp_bytes = covered(d1, index1, v6, v6 ? finish6 : finish4);
    wire [PORT_BITS-1:0] ip_bytes  = ip_covered(d1, index1);
    wire                 first1    = index1 == '0;

    multimqc_frame_sum #(.BYTES(BYTES)) udp_sum (.clk, .s_bytes(udp_bytes), .s_first(first1), .s_valid(valid1), .m_sum(f_udp_sum));
    multimqc_frame_sum #(.BYTES(BYTES)) ip_sum (.clk, .s_bytes(ip_bytes), .s_first(first1), .s_valid(valid1), .m_sum(f_ip_sum));

    // --- Clock 3: the frame is whole ----------------------------------------------
    wire        is_v6 = head[12*8 +: 16] == ETHERTYPE_V6;
    wire        is_v4 = head[12*8 +: 16] == ETHERTYPE_V4;
    wire        group_mac = head[0];
    wire [15:0] fragment = swapped(head[20*8 +: 16]);  // flags and place, IPv4
    // Neither a group (224 and above), nor, of IPv6, ff.
    wire        good4 = head[14*8 +: 8] == 8'h45 && head[23*8 +: 8] == UDP && fragment[12:0] == '0 && head[30*8+5 +: 3] != 3'b111;
    wire        good6 = head[14*8+4 +: 4] == 4'h6 && head[20*8 +: 8] == UDP && head[38*8 +: 8] != 8'hff;
    wire        long_enough = length2 >= (is_v6 ? 12'd62 : 12'd42);

    // The UDP header, and four words of the payload.
    localparam int WORDS_W = 5 * 64;
    localparam int AT_V4   = 34 * 8;
    localparam int AT_V6   = 54 * 8;
    localparam int FIELDS_W = WORDS_W + 12 + 3 + 16 + 32;
    logic [FIELDS_W-1:0]    fields3;
    logic [MORE_CLOCKS:0]   whole3;  // one for each clock from the third on

    always_ff @(posedge clk) begin
        whole3  <= (MORE_CLOCKS + 1)'({whole3, last2 && !s_dropped});
        fields3 <= {length2, is_v6, !group_mac && (is_v6 ? good6 : is_v4 && good4) && long_enough, !is_v6 && fragment[13],
                    is_v6 ? swapped(head[18*8 +: 16]) : swapped(head[16*8 +: 16]) - 16'd20, head[26*8 +: 32],
                    is_v6 ? head[AT_V6 +: WORDS_W] : head[AT_V4 +: WORDS_W]};
        if (rst) whole3 <= '0;
    end

    assign f_valid = whole3[MORE_CLOCKS];

    multimqc_delay #(.WIDTH(FIELDS_W), .CLOCKS(MORE_CLOCKS)) fields (
        .clk, .s_data(fields3),
        .m_data({f_length, f_v6, f_datagram, f_more, f_ip_length, f_source, f_word3, f_word2, f_word1, f_word0, f_udp})
    );
endmodule
