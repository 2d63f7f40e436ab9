// Makes frames: headers around a payload, with all checksums.
//
//	 payload ──┬──────────────────────────► queue ──────────┐
//	           └─► sum, 2 clocks ─┐                         ▼
//	 header ───┬─► sum, 2 clocks ─┴► checksums ─► queue ─► join ─► frame
//	           └──────────────────────────► queue ──────────┘
//
// A UDP checksum stands before what it covers, so the payload waits until all of it was seen, or until its first beat was, if the header
// brings the payload's sum. A frame leaves without a gap. Frames of fewer than 60 bytes are padded to that with zeros.
//
// `s_header` (multimqc_pkg::HEADER_*) goes with the first beat of its payload; a payload without bytes is one beat with tkeep 0.
module multimqc_framer (
    input  logic                clk,
    input  logic                rst,
    input  logic [multimqc_pkg::HEADER_W-1:0] s_header,
    input  logic [511:0]        s_tdata,
    input  logic [63:0]         s_tkeep,
    input  logic                s_tlast,
    input  logic                s_tvalid,
    output logic                s_tready,
    output logic [511:0]        m_tdata,
    output logic [63:0]         m_tkeep,
    output logic                m_tlast,
    output logic [multimqc_pkg::PORT_W-1:0]   m_tdest,
    output logic                m_tvalid,
    input  logic                m_tready
);
    localparam int DEPTH       = 64;                  // beats of payloads

    // --- Fields --------------------------------------------------------------------------
    // The 32 bytes of the header form.
    function automatic logic [255:0] form_of(input logic [multimqc_pkg::HEADER_W-1:0] h);
        form_of = {h[multimqc_pkg::HEADER_EPOCH +: 32], 16'd0, h[multimqc_pkg::HEADER_N +: 16],
                   h[multimqc_pkg::HEADER_OFFSET +: 64], h[multimqc_pkg::HEADER_NAMES +: 64],
                   h[multimqc_pkg::HEADER_STATUS +: 16], h[multimqc_pkg::HEADER_TOPIC +: 16],
                   h[multimqc_pkg::HEADER_KIND +: 8], 8'd1, 8'h51, 8'h4d};
    endfunction

    function automatic logic [15:0] swap(input logic [15:0] value);
        swap = {value[7:0], value[15:8]};
    endfunction

    function automatic logic [15:0] udp_length(input logic [multimqc_pkg::HEADER_W-1:0] h);
        udp_length = h[multimqc_pkg::HEADER_N +: 16] + (h[multimqc_pkg::HEADER_HEADED] ? 16'd40 : 16'd8);
    endfunction

    wire [511:0] s_bytes = multimqc_pkg::masked(s_tdata, s_tkeep);

    // --- Clock 1: sums of a beat and of the headers ---------------------------------------
    logic        first;  // the next beat is the first of its payload
    logic        place;  // for the payload, and for the header
    logic        summed_before;  // of the payload that has begun
    wire         summed = first ? s_header[multimqc_pkg::HEADER_SUMMED] : summed_before;
    wire         take = s_tvalid && s_tready;
    wire [255:0] form = s_header[multimqc_pkg::HEADER_HEADED] ? form_of(s_header) : '0;
    wire [15:0]  s_udp_length = swap(udp_length(s_header));
    // Protocol 17, and the length twice: in the pseudo header and in the header.
    wire [255:0] rest = {176'd0, 16'h1100, s_udp_length, s_udp_length, s_header[multimqc_pkg::HEADER_PORTS +: 32]};

    wire [15:0]  s_total = swap(udp_length(s_header) + 16'd20);
    wire [63:0]  v4_addresses = {s_header[multimqc_pkg::HEADER_ADDRESSES+128 +: 32],
                                 s_header[multimqc_pkg::HEADER_ADDRESSES +: 32]};

    logic        valid1, first1, last1, summed1;
    logic [20:0] data_sum1, form_sum1, rest_sum1;
    logic [19:0] ip_sum1;

    always_ff @(posedge clk) begin
        valid1    <= take;
        first1    <= first;
        last1     <= s_tlast;
        summed1   <= summed;
        data_sum1 <= summed ? 21'(s_header[multimqc_pkg::HEADER_SUM +: 16]) : multimqc_pkg::sum_of(s_bytes);
        form_sum1 <= multimqc_pkg::sum_of({s_header[multimqc_pkg::HEADER_ADDRESSES +: 256], form});
        rest_sum1 <= multimqc_pkg::sum_of({256'd0, rest});
        // Version and length, flags (do not fragment), hop limit and protocol: as in a frame, the first byte lowest.
        ip_sum1   <= 20'h00045 + 20'h00040 + 20'h01140 + 20'(s_total) + 20'(v4_addresses[15:0]) + 20'(v4_addresses[31:16]) +
                     20'(v4_addresses[47:32]) + 20'(v4_addresses[63:48]);
        if (take) begin
            first         <= s_tlast;
            summed_before <= summed;
        end
        if (rst) begin
            valid1 <= 1'b0;
            first  <= 1'b1;
        end
    end

    // --- Clock 2: the sum of all beats -------------------------------------------------------
    logic        valid2;
    logic [27:0] sum2;
    logic [19:0] ip_sum2;
    wire  [27:0] with_headers = 28'(data_sum1) + 28'(form_sum1) + 28'(rest_sum1);

    always_ff @(posedge clk) begin
        valid2 <= valid1 && (summed1 ? first1 : last1);
        if (valid1) begin
            sum2 <= first1 ? with_headers : sum2 + 28'(data_sum1);
            if (first1) ip_sum2 <= ip_sum1;
        end
        if (rst) valid2 <= 1'b0;
    end

    // --- Clock 3: the checksums --------------------------------------------------------------
    wire [15:0] udp_check_raw = ~multimqc_pkg::folded(sum2);
    // 0 would say that there is none.
    wire [15:0] udp_check = udp_check_raw == 16'd0 ? 16'hffff : udp_check_raw;
    wire [15:0] ip_check  = ~multimqc_pkg::folded(28'(ip_sum2));

    logic                checks_ready, checks_valid, header_ready, header_valid, payload_ready, payload_valid, payload_last;
    logic [15:0]         c_udp, c_ip;
    logic [multimqc_pkg::HEADER_W-1:0] h;
    logic [511:0]        p_data;
    logic                end_frame, take_payload;

    assign place    = payload_ready && (!first || header_ready);
    assign s_tready = place;

    multimqc_bypass_fifo #(.WIDTH(32), .DEPTH(32)) checks (
        .clk, .rst, .s_data({udp_check, ip_check}), .s_valid(valid2), .s_ready(checks_ready),
        .m_data({c_udp, c_ip}), .m_valid(checks_valid), .m_ready(end_frame)
    );
    multimqc_fifo #(.WIDTH(multimqc_pkg::HEADER_W), .DEPTH(16)) headers (
        .clk, .rst, .s_data(s_header), .s_valid(take && first), .s_ready(header_ready),
        .m_data(h), .m_valid(header_valid), .m_ready(end_frame)
    );
    multimqc_fifo #(.WIDTH(513), .DEPTH(DEPTH)) payloads (
        .clk, .rst, .s_data({s_tlast, s_bytes}), .s_valid(take), .s_ready(payload_ready),
        .m_data({payload_last, p_data}), .m_valid(payload_valid), .m_ready(take_payload)
    );

    // --- Join -------------------------------------------------------------------------------
    wire         v6     = h[multimqc_pkg::HEADER_V6];
    wire         headed = h[multimqc_pkg::HEADER_HEADED];
    wire [15:0]  h_udp_length = udp_length(h);
    wire [255:0] h_form = form_of(h);
    wire [15:0]  h_total = h_udp_length + 16'd20;
    wire [63:0]  udp_header = {c_udp, swap(h_udp_length), h[multimqc_pkg::HEADER_PORTS +: 32]};
    wire [335:0] headers_v4 = {udp_header, h[multimqc_pkg::HEADER_ADDRESSES+128 +: 32],
                               h[multimqc_pkg::HEADER_ADDRESSES +: 32], c_ip, 16'h1140, 16'h0040, 16'd0, swap(h_total), 16'h0045, 16'h0008, h[multimqc_pkg::HEADER_MACS +: 96]};
    wire [495:0] headers_v6 = {udp_header, h[multimqc_pkg::HEADER_ADDRESSES +: 256], 16'h4011, swap(h_udp_length),
                               32'h00000060, 16'hdd86,
                               h[multimqc_pkg::HEADER_MACS +: 96]};
    // The bytes before the payload, up to two beats.
    wire [751:0] front = v6 ? {h_form, headers_v6} : {160'd0, h_form, headers_v4};

    logic [511:0] carry;       // the bytes that did not fit into the beat before, and zeros
    logic         begun;       // the beats before were of this frame
    logic         all_taken;   // the payload's beats are all in `carry` or out
    logic [11:0]  left;        // bytes of the frame behind the beats that are out
    wire  [11:0]  whole = 12'(h_udp_length) + (v6 ? 12'd54 : 12'd34);
    wire  [11:0]  left_now = begun ? left : whole;

    // A first beat of headers only.
    wire alone = !begun && headed;
    wire active = checks_valid && header_valid && (payload_valid || all_taken);
    wire [511:0] prior = begun ? carry : front[511:0];
    wire [511:0] payload = all_taken && begun ? '0 : p_data;

    logic [511:0] joined, carry_next;

    always_comb begin
        // `prior` has as many bytes as the headers have in their last beat.
        case ({headed, v6})
            2'b00: begin joined = {payload[511-42*8:0], prior[42*8-1:0]}; carry_next = 512'(payload[511 -: 42*8]); end
            2'b01: begin joined = {payload[511-62*8:0], prior[62*8-1:0]}; carry_next = 512'(payload[511 -: 62*8]); end
            2'b10: begin joined = {payload[511-10*8:0], prior[10*8-1:0]}; carry_next = 512'(payload[511 -: 10*8]); end
            2'b11: begin joined = {payload[511-30*8:0], prior[30*8-1:0]}; carry_next = 512'(payload[511 -: 30*8]); end
        endcase
        if (alone) begin
            joined = front[511:0];
            carry_next = 512'(front[751:512]);
        end
    end

    wire        room = !m_tvalid || m_tready;
    wire        ends = left_now <= 12'd64;
    wire [11:0] padded = !begun && whole < 12'd60 ? 12'd60 : left_now;

    assign end_frame = active && room && ends;
    // The payload's last beat may be in `carry` already; a payload is never longer than its frame.
    assign take_payload = active && room && !alone && !(begun && all_taken);

    always_ff @(posedge clk) begin
        if (room) begin
            m_tvalid <= active;
            m_tdata  <= joined;
            m_tkeep  <= multimqc_pkg::keep_of(ends ? padded[6:0] : 7'd64);
            m_tlast  <= ends;
            m_tdest  <= h[multimqc_pkg::HEADER_DEST +: multimqc_pkg::PORT_W];
        end
        if (active && room) begin
            carry <= carry_next;
            begun <= !ends;
            left  <= left_now - 12'd64;
            if (ends) all_taken <= 1'b0;
            else if (take_payload && payload_last) all_taken <= 1'b1;
        end
        if (rst) begin
            m_tvalid  <= 1'b0;
            begun     <= 1'b0;
            all_taken <= 1'b0;
        end
    end

endmodule
