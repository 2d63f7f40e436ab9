// Decides which range of which topic is moved on next, for batches to the host and for bursts to level 2 alike.
//
//   a topic's log    | moved on            | waits           |
//                                          sent              committed
//
// A range is due when it has its full size (with ALIGN: when it ends at a multiple of the size), when its first byte has waited for
// `age` clocks, or at once while `flush` is high. A message that was stored makes the scheduler look at its topic; besides, all topics
// are looked at in turn. Ranges that level 1 has lost meanwhile are holes: `sent` goes on where there will be time to read, and
// nothing is ever moved together.
module store_transfer #(
    parameter int TOPICS = 8,
    parameter int ALIGN  = 0,
    parameter int SKIP_BYTES = 4096
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [TOPICS*64-1:0] committed,
    input  logic                 stored_valid,
    input  logic [7:0]           stored_topic,
    input  logic                 open_valid,
    input  logic [7:0]           open_topic,
    input  logic [63:0]          open_offset,
    input  logic [15:0]          size,   // with ALIGN: a power of two
    input  logic [31:0]          age,
    input  logic                 flush,
    input  logic                 enable,  // a range and a hole more can be taken
    // To store_read.
    output logic                 job_valid,
    input  logic                 job_ready,
    output logic [7:0]           job_topic,
    output logic [63:0]          job_offset,
    output logic [15:0]          job_length,
    input  logic                 decided,
    input  logic                 decided_hit,
    input  logic [63:0]          decided_floor,
    input  logic [63:0]          decided_committed,
    // For one clock: a range is being read, or a hole ends at `event_offset`. The bytes of a range that is void must be taken
    // and forgotten: its topic was opened anew meanwhile.
    output logic                 event_range,
    output logic                 event_void,
    output logic                 event_hole,
    output logic [7:0]           event_topic,
    output logic [63:0]          event_offset,
    output logic [15:0]          event_length,
    output logic [63:0]          event_hole_bytes
);
    localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
    localparam int QUEUE = 1 << TW;

`ifdef PLANTED
    // Bugs that the tests must catch, switched on by a plusarg of their name.
    logic BUG_AGE, BUG_HOLE;
    initial begin
        BUG_AGE = $test$plusargs("BUG_AGE") != 0;
        BUG_HOLE = $test$plusargs("BUG_HOLE") != 0;
    end
`else
    localparam logic BUG_AGE = 1'b0;
    localparam logic BUG_HOLE = 1'b0;
`endif

    logic [63:0] sent [TOPICS];
    logic [31:0] since [TOPICS];
    logic [TOPICS-1:0] queued;
    logic [31:0] now;

    // --- Which topics are due --------------------------------------------------------

    // A topic is looked at in one clock and judged in the next. A topic that was just sent comes first, then one that has a new
    // message, then the next in turn. A look that is lost is repeated in its turn.
    logic look_again;
    logic [TW-1:0] turn, again, looked;
    logic looked_valid, looked_queued;
    logic [63:0] looked_sent, looked_committed;
    logic [31:0] looked_since;
    logic look_turn;
    wire look_stored = stored_valid && !look_turn;
    wire [TW-1:0] look = look_again ? again : look_stored ? stored_topic[TW-1:0] : turn;

    logic queue_ready, queue_valid, queue_taken;
    logic [TW-1:0] queue_topic;
    wire [63:0] pending = looked_committed - looked_sent;
    wire [15:0] mask = size - 16'd1;
    wire [15:0] to_end = ALIGN != 0 ? size - (looked_sent[15:0] & mask) : size;
    wire is_full = pending >= {48'd0, to_end};
    wire is_old = now - looked_since >= age && !BUG_AGE;
    wire due = looked_valid && !looked_queued && pending != 64'd0 && (is_full || is_old || flush);

    multimqc_fifo #(
        .WIDTH(TW),
        .DEPTH(QUEUE < 2 ? 2 : QUEUE)
    ) queue (
        .clk,
        .rst,
        .s_data (looked),
        .s_valid(due),
        .s_ready(queue_ready),
        .m_data (queue_topic),
        .m_valid(queue_valid),
        .m_ready(queue_taken)
    );

    always_ff @(posedge clk) begin
        now              <= now + 32'd1;
        looked           <= look;
        looked_valid     <= 1'b1;
        looked_queued    <= queued[look] || (due && looked == look);
        looked_sent      <= sent[look];
        looked_committed <= committed[64*look+:64];
        looked_since     <= since[look];
        look_turn        <= look_stored;
        if (!look_again && !look_stored) turn <= turn == TW'(TOPICS - 1) ? '0 : turn + 1'b1;
        if (rst) begin
            now          <= '0;
            look_turn    <= 1'b0;
            turn         <= '0;
            looked_valid <= 1'b0;
        end
    end

    // --- One range at a time ------------------------------------------------------------

    typedef enum logic [2:0] {IDLE, SIZE, ASK, WAIT, DONE} state_t;
    state_t state;
    logic [TW-1:0] topic;
    logic [63:0] from, ready_bytes, new_sent;
    logic [15:0] limit;
    logic reopened;
    wire [63:0] after_hole = decided_floor + 64'(SKIP_BYTES);
    wire opens_it = open_valid && open_topic[TW-1:0] == topic;

    assign queue_taken = state == IDLE && queue_valid && enable;
    assign job_valid   = state == ASK;
    assign job_topic   = 8'(topic);
    assign job_offset  = from;

    always_ff @(posedge clk) begin
        event_range <= 1'b0;
        event_hole  <= 1'b0;
        look_again  <= 1'b0;
        case (state)
            IDLE: begin
                topic    <= queue_topic;
                reopened <= 1'b0;
                if (queue_taken) state <= SIZE;
            end
            SIZE: begin
                from        <= sent[topic];
                ready_bytes <= committed[64*topic+:64] - sent[topic];
                limit       <= ALIGN != 0 ? size - (sent[topic][15:0] & mask) : size;
                state       <= ASK;
            end
            ASK: if (job_ready) state <= WAIT;
            WAIT: if (decided) begin
                event_range      <= decided_hit;
                event_void       <= reopened || opens_it;
                event_hole       <= !decided_hit && !reopened && !opens_it;
                event_topic      <= 8'(topic);
                event_length     <= decided_hit ? job_length : 16'd0;
                event_offset     <= decided_hit || BUG_HOLE ? from
                    : after_hole < decided_committed ? after_hole : decided_committed;
                new_sent         <= decided_hit ? from + {48'd0, job_length}
                    : after_hole < decided_committed ? after_hole : decided_committed;
                state            <= DONE;
            end
            default: state <= IDLE;
        endcase
        if (state == DONE) begin
            // The topic is looked at again in the next clock, with its new `sent`.
            if (!reopened && !opens_it) begin
                sent[topic]  <= new_sent;
                since[topic] <= now;
            end
            queued[topic] <= 1'b0;
            look_again    <= 1'b1;
            again         <= topic;
        end
        if (due) queued[looked] <= 1'b1;
        // Without waiting bytes nothing ages. A look is one clock old: a topic that is just sent keeps its time.
        if (looked_valid && pending == 64'd0) since[looked] <= now;
        if (opens_it) reopened <= 1'b1;
        if (open_valid) begin
            sent[open_topic[TW-1:0]]  <= open_offset;
            since[open_topic[TW-1:0]] <= now;
        end
        if (rst) begin
            state      <= IDLE;
            look_again <= 1'b0;
            queued     <= '0;
            for (int i = 0; i < TOPICS; i++) begin
                sent[i]  <= '0;
                since[i] <= '0;
            end
        end
    end

    assign event_hole_bytes = new_sent - from;
    assign job_length = ready_bytes < {48'd0, limit} ? ready_bytes[15:0] : limit;
    wire unused = &{1'b0, queue_ready, stored_topic, open_topic};
endmodule
