// Answers read requests from the DRAM, in their order.
//
//   requests ─▶ judge: is the range there? ─▶ order ──────────────────────────────▶ realign ─▶ responses
//                   │                          │ nothing, DRAM or buffer             ▲
//                   └─▶ AXI4 reads ─▶ DRAM ─▶ beats, each range checked when it is ──┴─ or buffers of the prefetcher
//                                             whole: were its bytes overwritten?
//
// A response begins when all its beats are there and checked, so nothing torn leaves the level; they are summed up as they come, so that
// the checksum needs no second wait. The prefetcher sees readers that go on
// where they ended: it fetches the next range into one of its buffers before it is asked for. A log's bytes never change, so a buffer
// never is stale; a topic that is opened anew empties its buffers.
module store_level2_read #(
    parameter int TOPICS = 8,
    parameter longint RING_BYTES = 1 << 20,
    parameter int PREFETCH = 1,
    parameter int ADDR_W = 34
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [TOPICS*64-1:0]                     written,
    input  logic [TOPICS*64-1:0]                     floors,
    input  logic [TOPICS*2-1:0]                      generations,
    input  logic                                     open_valid,
    input  logic [7:0]                               open_topic,
    // {alone, tag, topic, offset, length}; alone: the log ends where this level ends, and fewer bytes are an answer.
    input  logic                                     s_valid,
    output logic                                     s_ready,
    input  logic [96:0]                              s_data,
    output logic [ADDR_W-1:0]                        m_axi_araddr,
    output logic [7:0]                               m_axi_arlen,
    output logic                                     m_axi_arvalid,
    input  logic                                     m_axi_arready,
    input  logic [511:0]                             m_axi_rdata,
    input  logic [1:0]                               m_axi_rresp,
    input  logic                                     m_axi_rvalid,
    output logic                                     m_axi_rready,
    output logic [511:0]                             m_tdata,
    output logic [63:0]                              m_tkeep,
    output logic                                     m_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] m_tuser,
    output logic                                     m_tvalid,
    input  logic                                     m_tready,
    // For one clock each: a request was answered, and whether without the DRAM.
    output logic                                     hit_valid,
    output logic [7:0]                               hit_topic,
    output logic                                     hit_prefetched
);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int RW = $clog2(RING_BYTES);
    localparam int BUFFERS = 4;
    localparam int BEATS = 128;  // of the FIFO for ranges that are not prefetched
    localparam logic [1:0] NOTHING = 2'd0;
    localparam logic [1:0] DRAM = 2'd1;
    localparam logic [1:0] BUFFER = 2'd2;

`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_SPLIT, BUG_TORN, BUG_FILLING, BUG_HALVES;
    initial begin
        BUG_SPLIT = $test$plusargs("BUG_SPLIT") != 0;
        BUG_TORN = $test$plusargs("BUG_TORN") != 0;
        BUG_FILLING = $test$plusargs("BUG_FILLING") != 0;
        BUG_HALVES = $test$plusargs("BUG_HALVES") != 0;
    end
`else
    localparam logic BUG_SPLIT = 1'b0;
    localparam logic BUG_TORN = 1'b0;
    localparam logic BUG_FILLING = 1'b0;
    localparam logic BUG_HALVES = 1'b0;
`endif

    // --- Judge --------------------------------------------------------------------------

    // A request, and what is known of its topic, read again in each clock that it waits.
    logic r_full, r_taken, r_alone;
    logic [7:0] r_tag, r_topic;
    logic [63:0] r_offset, r_written, r_floor;
    logic [15:0] r_length;
    logic [1:0] r_generation;
    wire r_load = s_valid && s_ready;
    wire [TW-1:0] r_look = r_load ? s_data[80+:TW] : r_topic[TW-1:0];

    // The judgement.
    logic j_full, j_taken;
    logic [1:0] j_status, j_generation;
    logic [7:0] j_tag, j_topic;
    logic [63:0] j_offset, j_end, j_written;
    logic [15:0] j_length;
    wire [63:0] r_there = r_written - r_offset;
    wire r_reached = r_offset < r_written;
    wire r_all = r_there >= {48'd0, r_length};
    wire [15:0] r_bytes = r_all ? r_length : r_there[15:0];
    wire [1:0] r_status = !r_reached && r_alone ? multimqc_pkg::STATUS_END
        : r_reached && r_offset >= r_floor && (r_all || r_alone) ? multimqc_pkg::STATUS_HIT
        : multimqc_pkg::STATUS_OVERWRITTEN;

    assign s_ready = !r_full || r_taken;
    assign r_taken = r_full && (!j_full || j_taken);

    always_ff @(posedge clk) begin
        r_written    <= written[64*r_look+:64];
        r_floor      <= floors[64*r_look+:64];
        r_generation <= generations[2*r_look+:2];
        if (r_load) {r_alone, r_tag, r_topic, r_offset, r_length} <= s_data;
        if (r_load) r_full <= 1'b1;
        else if (r_taken) r_full <= 1'b0;
        if (r_taken) begin
            j_full       <= 1'b1;
            j_status     <= r_status;
            j_generation <= r_generation;
            j_tag        <= r_tag;
            j_topic      <= r_topic;
            j_offset     <= r_status == multimqc_pkg::STATUS_END ? r_written : r_offset;
            j_length     <= r_status == multimqc_pkg::STATUS_HIT ? r_bytes : 16'd0;
            j_end        <= r_offset + {48'd0, r_bytes};
            j_written    <= r_written;
        end else if (j_taken) begin
            j_full <= 1'b0;
        end
        if (rst) begin
            r_full <= 1'b0;
            j_full <= 1'b0;
        end
    end

    function automatic logic [5:0] beats_of(input logic [5:0] skip, input logic [15:0] length);
        beats_of = 6'(({10'd0, skip} + length + 16'd63) >> 6);
    endfunction

    // --- Buffers of the prefetcher ---------------------------------------------------------

    logic [BUFFERS-1:0] b_valid, b_filling, b_bad, b_chained, match, same;
    logic [BUFFERS*8-1:0] b_topic;
    logic [BUFFERS*64-1:0] b_start, b_end;
    logic [BUFFERS*7-1:0] b_refs;
    logic [63:0] ended [TOPICS];  // where the last request of a topic ended
    logic [1:0] victim, matched;
    logic j_hit, follows, next_wanted, fetch_now, next_now;
    logic [63:0] next_start, next_end;
    logic [15:0] next_bytes;

    function automatic logic [15:0] ahead_of(input logic [15:0] length);
        if (length > 16'd1024) ahead_of = length;
        else if (length > 16'd512) ahead_of = length << 1;
        else if (length > 16'd256) ahead_of = length << 2;
        else if (length > 16'd128) ahead_of = length << 3;
        else if (length > 16'd64) ahead_of = length << 4;
        else ahead_of = length << 5;
    endfunction

    always_comb begin
        matched = 2'd0;
        for (int i = 0; i < BUFFERS; i++) begin
            match[i] = b_valid[i] && b_topic[8*i+:8] == j_topic && j_offset >= b_start[64*i+:64] && j_end <= b_end[64*i+:64];
            if (match[i]) matched = 2'(i);
        end
        next_start = match != '0 ? b_end[64*matched+:64] : j_end;
        next_bytes = ahead_of(j_length);
        next_end   = next_start + {48'd0, next_bytes};
        for (int i = 0; i < BUFFERS; i++) begin
            same[i] = b_valid[i] && b_topic[8*i+:8] == j_topic && b_start[64*i+:64] == next_start;
        end
        j_hit       = j_status == multimqc_pkg::STATUS_HIT;
        follows     = match != '0 ? !b_chained[matched] : ended[j_topic[TW-1:0]] == j_offset;
        next_wanted = PREFETCH != 0 && j_hit && follows && next_end <= j_written && same == '0
            && !b_filling[victim] && b_refs[7*victim+:7] == 7'd0 && !(match[victim]);
    end

    // --- Fetches ------------------------------------------------------------------------------

    localparam int FETCH_W = 3 + TW + 2 + 6 + 64 + 6;  // {buffer, its number, topic, generation, end in its last beat, offset, beats}
    logic [7:0] room;  // beats of the FIFO that are promised to nobody
    logic order_ready, fetch_ready, pending_fetch, pending_next;
    logic [FETCH_W-1:0] fetch_data, next_data;
    wire [5:0] j_beats = beats_of(j_offset[5:0], j_length);
    wire [5:0] next_beats = beats_of(next_start[5:0], next_bytes);
    wire needs_dram = j_hit && match == '0;

    assign j_taken   = j_full && order_ready && !pending_fetch && !pending_next && (!needs_dram || room >= {2'd0, j_beats});
    assign fetch_now = j_taken && needs_dram;
    assign next_now  = j_taken && next_wanted;

    // A fetch becomes one or two bursts: they end at multiples of 4,096 bytes, where a ring ends as well.
    logic fetch_taken;
    logic [5:0] beats_left;
    logic [RW-1:6] line;
    logic [TW-1:0] line_topic;
    logic bursting;
    wire [6:0] to_edge = 7'd64 - {1'b0, line[11:6]};
    wire [5:0] burst = {1'b0, beats_left} > to_edge && !BUG_SPLIT ? to_edge[5:0] : beats_left;
    wire burst_moves = m_axi_arvalid && m_axi_arready;
    // A fetch of a request begins at once if none goes on.
    wire fetch_begins = !bursting && (pending_fetch || pending_next || fetch_now) && fetch_ready;
    wire [FETCH_W-1:0] fetch_asked = {3'd0, j_topic[TW-1:0], j_generation, j_end[5:0], j_offset, j_beats};
    wire [FETCH_W-1:0] fetch = pending_fetch ? fetch_data : pending_next ? next_data : fetch_asked;

    assign m_axi_arvalid = bursting;
    assign m_axi_arlen   = {2'd0, burst - 6'd1};
    if (TOPICS > 1) begin : g_topics
        assign m_axi_araddr = ADDR_W'({line_topic, line, 6'd0});
    end else begin : g_topic
        assign m_axi_araddr = ADDR_W'({line, 6'd0});
    end
    assign fetch_taken = fetch_begins;

    always_ff @(posedge clk) begin
        if (fetch_begins) begin
            bursting   <= 1'b1;
            beats_left <= fetch[5:0];
            line       <= fetch[6+6+:RW-6];
            line_topic <= fetch[6+64+6+2+:TW];
            if (pending_fetch) pending_fetch <= 1'b0;
            else pending_next <= 1'b0;
        end
        if (burst_moves) begin
            beats_left <= beats_left - burst;
            line       <= line + (RW - 6)'(burst);
            if (beats_left == burst) bursting <= 1'b0;
        end
        if (fetch_now) begin
            pending_fetch <= !fetch_begins;
            fetch_data    <= fetch_asked;
        end
        if (next_now) begin
            pending_next <= 1'b1;
            next_data    <= {1'b1, victim, j_topic[TW-1:0], j_generation, next_end[5:0], next_start, next_beats};
        end
        if (rst) begin
            bursting      <= 1'b0;
            pending_fetch <= 1'b0;
            pending_next  <= 1'b0;
        end
    end

    // --- Beats of the DRAM ----------------------------------------------------------------------

    logic in_valid, in_buffer, in_error, in_done;
    logic [1:0] in_number, in_generation;
    logic [TW-1:0] in_topic;
    logic [63:0] in_offset;
    logic [5:0] in_beats, in_at, in_end;

    multimqc_fifo #(
        .WIDTH(FETCH_W),
        .DEPTH(64)
    ) fetches (
        .clk,
        .rst,
        .s_data (fetch),
        .s_valid(fetch_taken),
        .s_ready(fetch_ready),
        .m_data ({in_buffer, in_number, in_topic, in_generation, in_end, in_offset, in_beats}),
        .m_valid(in_valid),
        .m_ready(in_done)
    );

    assign m_axi_rready = 1'b1;
    assign in_done = m_axi_rvalid && in_at + 6'd1 == in_beats;

    // The bytes of a beat that are of the range, and their sum with those before.
    logic c_beat, c_first;
    logic [20:0] c_bytes;
    logic [27:0] c_before;
    wire [63:0] in_keep = (in_at == 6'd0 ? {64{1'b1}} << in_offset[5:0] : {64{1'b1}})
        & (in_done && in_end != 6'd0 ? multimqc_pkg::keep_of({1'b0, in_end}) : {64{1'b1}});
    wire [27:0] c_all = 28'(c_bytes) + (c_first ? 28'd0 : c_before);
    wire [15:0] c_words = multimqc_pkg::folded(c_all);
    wire [15:0] c_sum = c_offset[0] && !BUG_HALVES ? {c_words[7:0], c_words[15:8]} : c_words;

    logic c_valid, c_buffer, c_error;
    logic [1:0] c_number, c_generation;
    logic [TW-1:0] c_topic;
    logic [63:0] c_offset;
    wire c_whole = c_offset >= floors[64*c_topic+:64] && c_generation == generations[2*c_topic+:2];
    wire c_good = !c_error && (c_whole || BUG_TORN);

    always_ff @(posedge clk) begin
        if (m_axi_rvalid) begin
            in_at    <= in_done ? 6'd0 : in_at + 6'd1;
            in_error <= !in_done && (in_error || m_axi_rresp != 2'd0);
        end
        c_beat       <= m_axi_rvalid;
        c_first      <= in_at == 6'd0;
        c_bytes      <= multimqc_pkg::sum_of(multimqc_pkg::masked(m_axi_rdata, in_keep));
        if (c_beat) c_before <= c_all;
        c_valid      <= in_done;
        c_buffer     <= in_buffer;
        c_number     <= in_number;
        c_topic      <= in_topic;
        c_generation <= in_generation;
        c_offset     <= in_offset;
        c_error      <= in_error || m_axi_rresp != 2'd0;
        if (rst) begin
            in_at    <= '0;
            in_error <= 1'b0;
            c_valid  <= 1'b0;
        end
    end

    logic beat_valid, beat_taken, beat_ready, good_valid, good, good_taken, good_ready;
    logic [511:0] beat, buffered;
    (* ram_style = "distributed" *) logic [511:0] buffers [BUFFERS*64];

    multimqc_fifo #(
        .WIDTH(512),
        .DEPTH(BEATS)
    ) beats (
        .clk,
        .rst,
        .s_data (m_axi_rdata),
        .s_valid(m_axi_rvalid && !in_buffer),
        .s_ready(beat_ready),
        .m_data (beat),
        .m_valid(beat_valid),
        .m_ready(beat_taken)
    );

    logic [15:0] range_sum;
    multimqc_bypass_fifo #(
        .WIDTH(17),
        .DEPTH(BEATS)
    ) verdicts (
        .clk,
        .rst,
        .s_data ({c_good, c_sum}),
        .s_valid(c_valid && !c_buffer),
        .s_ready(good_ready),
        .m_data ({good, range_sum}),
        .m_valid(good_valid),
        .m_ready(good_taken)
    );

    always_ff @(posedge clk) begin
        if (m_axi_rvalid && in_buffer) buffers[{in_number, in_at}] <= m_axi_rdata;
        room <= room - (fetch_now ? {2'd0, j_beats} : 8'd0) + {7'd0, beat_taken && beat_valid};
        if (rst) room <= 8'(BEATS);
    end

    // --- Order ------------------------------------------------------------------------------------

    localparam int ORDER_W = 2 + 2 + 6 + 2 + 8 + 8 + 64 + 16 + 6;
    logic o_valid, o_taken;
    logic [1:0] o_from, o_number, o_status;
    logic [5:0] o_row, o_beats;
    logic [7:0] o_tag, o_topic;
    logic [63:0] o_offset;
    logic [15:0] o_length;
    wire [5:0] row_now = 6'(j_offset[63:6] - b_start[64*matched+6+:58]);

    multimqc_fifo #(
        .WIDTH(ORDER_W),
        .DEPTH(64)
    ) order (
        .clk,
        .rst,
        .s_data ({!j_hit ? NOTHING : match != '0 ? BUFFER : DRAM, matched, row_now, j_status, j_tag, j_topic, j_offset, j_length,
                  j_beats}),
        .s_valid(j_taken),
        .s_ready(order_ready),
        .m_data ({o_from, o_number, o_row, o_status, o_tag, o_topic, o_offset, o_length, o_beats}),
        .m_valid(o_valid),
        .m_ready(o_taken)
    );

    // --- Realign -------------------------------------------------------------------------------------

    // Bytes of two neighbouring beats make one of the response. The first beat of several is only kept, without a verdict.
    logic [511:0] kept;
    logic [5:0] row;      // beats that were taken
    logic [15:0] done;    // bytes that were sent
    logic room_out;
    wire buffer_whole = !b_filling[o_number] || BUG_FILLING;
    wire buffer_good = !b_bad[o_number];
    wire is_here = o_valid && (o_from == NOTHING || (o_from == DRAM ? good_valid : buffer_whole));
    wire is_good = o_from == DRAM ? good : buffer_good;
    wire [511:0] source = o_from == DRAM ? beat : buffered;
    wire [15:0] left = o_length - done;
    wire last_bytes = left <= 16'd64;
    wire all_taken = row == o_beats;
    wire only_keep = row == 6'd0 && o_beats != 6'd1;
    wire [1023:0] pair = {source, kept};
    wire [511:0] single = source >> {o_offset[5:0], 3'd0};
    wire [511:0] joined = pair[{1'b0, o_offset[5:0], 3'd0}+:512];
    wire [511:0] rest = kept >> {o_offset[5:0], 3'd0};

    assign buffered = buffers[{o_number, o_row + row}];

    // A bad range: its beats are thrown away, then there is a status.
    wire throws = is_here && o_from == DRAM && !is_good && !all_taken && !only_keep;
    wire fails = is_here && (o_from == NOTHING || (!is_good && (o_from == BUFFER || all_taken)));
    wire sends = is_here && o_from != NOTHING && is_good && !only_keep;
    wire moves = (fails || sends) && room_out;
    wire keeps = o_valid && only_keep && (o_from == DRAM ? beat_valid : o_from == BUFFER && buffer_whole && buffer_good);
    wire uses_beat = throws || keeps || (sends && room_out && !all_taken);

    assign beat_taken = o_from == DRAM && uses_beat;
    assign o_taken    = moves && (fails || last_bytes);
    assign good_taken = o_taken && o_from == DRAM;

    always_ff @(posedge clk) begin
        if (uses_beat) begin
            kept <= source;
            row  <= row + 6'd1;
        end
        if (moves) done <= done + 16'd64;
        if (o_taken) begin
            row  <= '0;
            done <= '0;
        end
        if (rst) begin
            row  <= '0;
            done <= '0;
        end
    end

    wire [1:0] out_status = o_from != NOTHING && fails ? multimqc_pkg::STATUS_OVERWRITTEN : o_status;
    multimqc_fifo #(
        .WIDTH(512 + 64 + 1 + multimqc_pkg::READ_RESPONSE_W),
        .DEPTH(4)
    ) out (
        .clk,
        .rst,
        .s_data ({o_beats == 6'd1 ? single : all_taken ? rest : joined,
                  fails ? 64'd0 : multimqc_pkg::keep_of(last_bytes ? left[6:0] : 7'd64), fails || last_bytes,
                  o_from == DRAM && !fails, range_sum, o_tag, out_status, o_offset, fails ? 16'd0 : o_length}),
        .s_valid(fails || sends),
        .s_ready(room_out),
        .m_data ({m_tdata, m_tkeep, m_tlast, m_tuser}),
        .m_valid(m_tvalid),
        .m_ready(m_tready)
    );

    assign hit_valid      = o_taken && sends;
    assign hit_topic      = o_topic;
    assign hit_prefetched = o_from == BUFFER;

    // --- The life of a buffer ---------------------------------------------------------------------

    wire uses_buffer = j_taken && j_hit && match != '0;
    wire leaves_buffer = o_taken && o_from == BUFFER;

    always_ff @(posedge clk) begin
        for (int i = 0; i < BUFFERS; i++) begin
            b_refs[7*i+:7] <= b_refs[7*i+:7] + 7'(uses_buffer && matched == 2'(i)) - 7'(leaves_buffer && o_number == 2'(i));
            if (c_valid && c_buffer && c_number == 2'(i)) begin
                b_filling[i] <= 1'b0;
                b_bad[i]     <= !c_good;
                if (!c_good) b_valid[i] <= 1'b0;
            end
            if (uses_buffer && next_now && matched == 2'(i)) b_chained[i] <= 1'b1;
            if (next_now && victim == 2'(i)) begin
                b_valid[i]        <= 1'b1;
                b_filling[i]      <= 1'b1;
                b_chained[i]      <= 1'b0;
                b_topic[8*i+:8]   <= j_topic;
                b_start[64*i+:64] <= next_start;
                b_end[64*i+:64]   <= next_end;
            end
            if (open_valid && open_topic == (next_now && victim == 2'(i) ? j_topic : b_topic[8*i+:8])) b_valid[i] <= 1'b0;
        end
        // A buffer that cannot be had now is left for the next time.
        if (next_now || b_filling[victim] || b_refs[7*victim+:7] != 7'd0) victim <= victim + 2'd1;
        if (j_taken && j_hit) ended[j_topic[TW-1:0]] <= j_end;
        if (rst) begin
            b_valid   <= '0;
            b_filling <= '0;
            b_bad     <= '0;
            b_chained <= '0;
            b_refs    <= '0;
            victim    <= '0;
            for (int i = 0; i < TOPICS; i++) ended[i] <= '1;
        end
    end
    wire unused = &{1'b0, beat_ready, good_ready, in_valid};
endmodule
