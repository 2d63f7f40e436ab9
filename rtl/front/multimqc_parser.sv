// Reads the headers of Ethernet frames at 64 bits a clock, and sums up what their checksums cover.
//
// A frame's fields are there (`f_valid`) three clocks after its last beat, for one clock. Frames may follow each other without a
// gap, at any length. A field means something only if the frame is long enough to have it: see `multimqc_classifier`.
//
//	bytes of a frame    0      14        34         42          (IPv4 without options)
//	                    | eth  | IPv4    | UDP      | payload
//	                    0      14        54         62          (IPv6 without extension headers)
//
// The UDP header is the 8 bytes before the payload, so the beats are shifted once, by 2 or 6 bytes, and give word -1 (the UDP
// header), 0, 1, … of the payload.
module multimqc_parser #(
    parameter int INDEX_W = 11
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [63:0]  s_tdata,
    input  logic [7:0]   s_tkeep,
    input  logic         s_tlast,
    input  logic         s_tvalid,
    // The frame that ends two clocks after its last beat has no place, or is broken.
    input  logic         s_dropped,

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

    // --- Clock 1: the beat in a register, with its number -----------------------
    logic [63:0]        d1;
    logic [7:0]         keep1;
    logic               last1;
    logic               valid1;
    logic [INDEX_W-1:0] index1;

    always_ff @(posedge clk) begin
        d1     <= s_tdata;
        keep1  <= s_tkeep;
        last1  <= s_tlast;
        valid1 <= s_tvalid;
        // Frames that are longer than the count are dropped by the buffer long before.
        if (valid1) index1 <= last1 ? '0 : index1 + 1'b1;
        if (rst) begin
            valid1 <= 1'b0;
            index1 <= '0;
        end
    end

    // --- Clock 2: fields, and the sum of this beat -------------------------------
    logic [63:16] d2;
    logic        last2;
    logic        valid2;
    logic [11:0] length2;
    logic        v6, group_mac, is_v4, ver4, ver6, udp4, udp6, first4, more4, one4, one6;
    logic [15:0] total4, plen6;
    logic [31:0] source;
    logic [63:0] udp, word0, word1, word2, word3;
    logic [INDEX_W+2:0] finish;   // the first byte behind the datagram
    logic [17:0] udp_part, ip_part;
    logic        first2;

    wire [63:0] aligned = v6 ? {d1[47:0], d2[63:48]} : {d1[15:0], d2[63:16]};
    wire [INDEX_W-1:0] word_index = index1 - (v6 ? INDEX_W'(8) : INDEX_W'(6));

    function automatic logic [3:0] count_bytes(input logic [7:0] keep);
        count_bytes = 4'd0;
        for (int i = 0; i < 8; i++) count_bytes = count_bytes + {3'd0, keep[i]};
    endfunction

    function automatic logic [17:0] sum_words(input logic [63:0] data);
        sum_words = {2'd0, data[15:0]} + {2'd0, data[31:16]} + {2'd0, data[47:32]} + {2'd0, data[63:48]};
    endfunction

    // The bytes of this beat that the UDP checksum covers: from the addresses to the end of the datagram.
    function automatic logic [63:0] covered(
        input logic [63:0] data, input logic [INDEX_W-1:0] index, input logic is_v6, input logic [INDEX_W+2:0] stop
    );
        logic after_start, before_end;
        for (int i = 0; i < 8; i++) begin
            // IPv4 addresses begin at 26 (beat 3, byte 2), IPv6 addresses at 22 (beat 2, byte 6).
            after_start = is_v6 ? (index > INDEX_W'(2) || (index == INDEX_W'(2) && i >= 6))
                                : (index > INDEX_W'(3) || (index == INDEX_W'(3) && i >= 2));
            before_end = index <= INDEX_W'(2) || index < stop[INDEX_W+2:3] ||
                         (index == stop[INDEX_W+2:3] && 3'(i) < stop[2:0]);
            covered[i*8 +: 8] = after_start && before_end ? data[i*8 +: 8] : 8'd0;
        end
    endfunction

    // The bytes of the IPv4 header, from 14 to 33.
    function automatic logic [63:0] ip_covered(input logic [63:0] data, input logic [INDEX_W-1:0] index);
        case (index)
            INDEX_W'(1): ip_covered = {data[63:48], 48'd0};
            INDEX_W'(2): ip_covered = data;
            INDEX_W'(3): ip_covered = data;
            INDEX_W'(4): ip_covered = {48'd0, data[15:0]};
            default:     ip_covered = '0;
        endcase
    endfunction

    wire [15:0] total_now = {d1[7:0], d1[15:8]};
    wire [15:0] plen_now  = {d1[23:16], d1[31:24]};

    always_ff @(posedge clk) begin
        valid2   <= valid1;
        last2    <= valid1 && last1;
        first2   <= index1 == '0;
        length2  <= 12'({index1, 3'd0}) + 12'(count_bytes(keep1));
        udp_part <= sum_words(covered(d1, index1, v6, finish));
        ip_part  <= sum_words(ip_covered(d1, index1));
        if (valid1) begin
            d2 <= d1[63:16];
            case (index1)
                INDEX_W'(0): group_mac <= d1[0];
                INDEX_W'(1): begin
                    v6    <= d1[47:32] == ETHERTYPE_V6;
                    is_v4 <= d1[47:32] == ETHERTYPE_V4;
                    ver4  <= d1[55:48] == 8'h45;
                    ver6  <= d1[55:52] == 4'h6;
                end
                INDEX_W'(2): begin
                    total4 <= total_now;
                    plen6  <= plen_now;
                    first4 <= {d1[36:32], d1[47:40]} == '0;
                    more4  <= d1[37];
                    udp4   <= d1[63:56] == UDP;
                    udp6   <= d1[39:32] == UDP;
                    finish <= v6 ? (INDEX_W + 3)'(plen_now) + (INDEX_W + 3)'(54)
                                 : (INDEX_W + 3)'(total_now) + (INDEX_W + 3)'(14);
                end
                INDEX_W'(3): begin
                    source <= d1[47:16];
                    one4   <= d1[55:53] != 3'b111;
                end
                INDEX_W'(4): one6 <= d1[55:48] != 8'hff;
                default: ;
            endcase
            if (word_index == '1) udp <= aligned;
            if (word_index == INDEX_W'(0)) word0 <= aligned;
            if (word_index == INDEX_W'(1)) word1 <= aligned;
            if (word_index == INDEX_W'(2)) word2 <= aligned;
            if (word_index == INDEX_W'(3)) word3 <= aligned;
        end
        if (rst) begin
            valid2 <= 1'b0;
            last2  <= 1'b0;
        end
    end

    // --- Clock 3: the frame is whole ----------------------------------------------
    logic [31:0] udp_sum, ip_sum;
    wire  [31:0] udp_next = (first2 ? 32'd0 : udp_sum) + 32'(udp_part);
    wire  [31:0] ip_next  = (first2 ? 32'd0 : ip_sum) + 32'(ip_part);

    always_ff @(posedge clk) begin
        if (valid2) begin
            udp_sum <= udp_next;
            ip_sum  <= ip_next;
        end
        f_valid     <= last2 && !s_dropped;
        f_length    <= length2;
        f_v6        <= v6;
        f_datagram  <= !group_mac && (v6 ? ver6 && udp6 && one6 && length2 >= 12'd62
                                         : is_v4 && ver4 && udp4 && first4 && one4 && length2 >= 12'd42);
        f_more      <= !v6 && more4;
        f_ip_length <= v6 ? plen6 : total4 - 16'd20;
        f_source    <= source;
        f_udp       <= udp;
        f_word0     <= word0;
        f_word1     <= word1;
        f_word2     <= word2;
        f_word3     <= word3;
        f_udp_sum   <= udp_next;
        f_ip_sum    <= ip_next;
        if (rst) f_valid <= 1'b0;
    end
endmodule
