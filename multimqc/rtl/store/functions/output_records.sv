// The frame of an output function: what it makes of the records of a response is packed and sent with its length.
//
//   response ─▶ a beat: 64 / RECORD_BYTES records ─▶ function ─▶ packed bytes of the beat ─▶ beats ─▶ FIFO ─▶ response
//
// A record has RECORD_BYTES bytes, a power of two from 4 to 64, and begins at a multiple of them. A response that does not begin and
// end with a record, or of which nothing is left, goes to the host, whose output function does the same. FUNCTION 1 drops the records
// whose number at AT lies in [LOW, HIGH]; FUNCTION 2 sends FIELD_BYTES bytes of each record, from AT on. A function of another kind
// takes the place of `g_function`: it sees a beat and sets `kept`, the bytes, and `kept_bytes`, their number.
module output_records #(
    parameter int FUNCTION = 1,
    parameter int RECORD_BYTES = 32,
    parameter int AT = 8,
    parameter int FIELD_BYTES = 4,
    parameter int IS_SIGNED = 0,
    parameter longint LOW = 100,
    parameter longint HIGH = 200
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [511:0]                             s_tdata,
    input  logic [63:0]                              s_tkeep,
    input  logic                                     s_tlast,
    input  logic [multimqc_pkg::READ_RESPONSE_W-1:0] s_tuser,
    input  logic                                     s_tvalid,
    output logic                                     s_tready,
    output logic [511:0]                             m_tdata,
    output logic [63:0]                              m_tkeep,
    output logic                                     m_tlast,
    output logic [multimqc_pkg::READ_RESPONSE_W-1:0] m_tuser,
    output logic                                     m_tvalid,
    input  logic                                     m_tready
);
    localparam int RECORDS = 64 / RECORD_BYTES;
    localparam int OUT_BYTES = FUNCTION == 2 ? FIELD_BYTES : RECORD_BYTES;

    if ((1 << $clog2(RECORD_BYTES)) != RECORD_BYTES || RECORD_BYTES < 4 || RECORD_BYTES > 64) begin : g_record
        $error("output_records: RECORD_BYTES is not a power of two from 4 to 64");
    end
    if (AT < 0 || FIELD_BYTES < 1 || AT + FIELD_BYTES > RECORD_BYTES || (FUNCTION == 1 && FIELD_BYTES > 8)) begin : g_field
        $error("output_records: the field is not in the record");
    end
    if (FUNCTION != 1 && FUNCTION != 2) begin : g_unknown
        $error("output_records: FUNCTION is not 1 or 2");
    end

    // --- The function ---------------------------------------------------------------

    logic [511:0] kept;
    logic [6:0] kept_bytes;
    logic [RECORDS-1:0] keeps;
    wire signed [64:0] low = 65'(LOW);
    wire signed [64:0] high = 65'(HIGH);

    for (genvar i = 0; i < RECORDS; i++) begin : g_function
        wire [8*FIELD_BYTES-1:0] field = s_tdata[8*(i*RECORD_BYTES+AT)+:8*FIELD_BYTES];
        if (FUNCTION == 1) begin : g_drop
            wire sign = IS_SIGNED != 0 && field[8*FIELD_BYTES-1];
            wire signed [64:0] value = {{65 - 8 * FIELD_BYTES{sign}}, field};
            assign keeps[i] = s_tkeep[i*RECORD_BYTES] && !(value >= low && value <= high);
        end else begin : g_extract
            assign keeps[i] = s_tkeep[i*RECORD_BYTES];
        end
    end

    always_comb begin
        kept = '0;
        kept_bytes = 7'd0;
        for (int i = 0; i < RECORDS; i++) begin
            if (keeps[i]) begin
                kept = kept | (512'(s_tdata[8*(i*RECORD_BYTES+(FUNCTION == 2 ? AT : 0))+:8*OUT_BYTES]) << {kept_bytes, 3'd0});
                kept_bytes = kept_bytes + 7'(OUT_BYTES);
            end
        end
    end

    // --- Packed beats -----------------------------------------------------------------

    // A beat of the input is registered with what the function made of it; then its bytes join those that wait.
    logic f_valid, f_last, f_whole;
    logic [511:0] f_data;
    logic [6:0] f_bytes;
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] f_user;
    logic [511:0] waiting;
    logic [5:0] waiting_bytes;
    logic [15:0] total;
    logic rest;  // after the last beat: what did not fit into it
    logic f_taken, beat_ready, header_ready;
    wire [1023:0] joined = {512'd0, waiting} | ({512'd0, f_data} << {waiting_bytes, 3'd0});
    wire [7:0] sum = {2'd0, waiting_bytes} + {1'b0, f_bytes};
    wire fills = sum >= 8'd64;
    wire over = sum > 8'd64;
    wire is_hit = s_tuser[multimqc_pkg::RESPONSE_STATUS+:2] == multimqc_pkg::STATUS_HIT;
    wire aligned = ((s_tuser[multimqc_pkg::RESPONSE_OFFSET+:6] | s_tuser[multimqc_pkg::RESPONSE_LENGTH+:6]) & 6'(RECORD_BYTES - 1))
        == 6'd0;

    // A response ends with the beat that holds its last bytes, even if there are none: then with an empty one.
    wire ends_now = rest || (f_last && !over);
    wire emits = rest || (f_valid && (fills || f_last));
    wire may = beat_ready && header_ready;

    assign f_taken  = f_valid && !rest && (!emits || may);
    assign s_tready = !f_valid || f_taken;

    always_ff @(posedge clk) begin
        if (s_tready) begin
            f_valid <= s_tvalid;
            f_last  <= s_tlast;
            f_data  <= kept;
            f_bytes <= is_hit && aligned ? kept_bytes : 7'd0;
            f_whole <= is_hit && aligned;
            f_user  <= s_tuser;
        end
        if (rest && may) begin
            rest          <= 1'b0;
            waiting       <= '0;
            waiting_bytes <= '0;
            total         <= '0;
        end else if (f_taken) begin
            total <= f_last && !over ? 16'd0 : total + {9'd0, f_bytes};
            rest  <= f_last && over;
            if (f_last && !over) begin
                waiting       <= '0;
                waiting_bytes <= '0;
            end else begin
                waiting       <= fills ? joined[1023:512] : joined[511:0];
                waiting_bytes <= sum[5:0];
            end
        end
        if (rst) begin
            f_valid       <= 1'b0;
            rest          <= 1'b0;
            waiting       <= '0;
            waiting_bytes <= '0;
            total         <= '0;
        end
    end

    // --- A response is sent when its length is known -------------------------------------

    // The user of a response that has `rest` stays in f_user only until the next beat is there.
    logic [multimqc_pkg::READ_RESPONSE_W-1:0] rest_user, out_user, user_now;
    logic [15:0] rest_total;
    logic rest_whole, header_valid, header_taken, beat_valid, beat_taken, beat_last;
    logic [511:0] beat;
    logic [15:0] done;
    wire [15:0] all_bytes = rest ? rest_total : total + {9'd0, f_bytes};
    wire whole_now = rest ? rest_whole : f_whole;
    wire [multimqc_pkg::READ_RESPONSE_W-1:0] from_user = rest ? rest_user : f_user;
    wire was_hit = from_user[multimqc_pkg::RESPONSE_STATUS+:2] == multimqc_pkg::STATUS_HIT;

    always_ff @(posedge clk) begin
        if (f_taken) begin
            rest_user  <= f_user;
            rest_total <= total + {9'd0, f_bytes};
            rest_whole <= f_whole;
        end
    end

    always_comb begin
        user_now = from_user;
        user_now[multimqc_pkg::RESPONSE_LENGTH+:16] = all_bytes;
        user_now[multimqc_pkg::RESPONSE_SUMMED] = 1'b0;
        if (was_hit && (!whole_now || all_bytes == 16'd0)) begin
            user_now[multimqc_pkg::RESPONSE_STATUS+:2]  = multimqc_pkg::STATUS_OVERWRITTEN;
            user_now[multimqc_pkg::RESPONSE_LENGTH+:16] = 16'd0;
        end
    end

    multimqc_fifo #(
        .WIDTH(513),
        .DEPTH(64)
    ) beats (
        .clk,
        .rst,
        .s_data ({ends_now, rest ? waiting : joined[511:0]}),
        .s_valid(emits && may),
        .s_ready(beat_ready),
        .m_data ({beat_last, beat}),
        .m_valid(beat_valid),
        .m_ready(beat_taken)
    );

    multimqc_fifo #(
        .WIDTH(multimqc_pkg::READ_RESPONSE_W),
        .DEPTH(64)
    ) headers (
        .clk,
        .rst,
        .s_data (user_now),
        .s_valid(emits && may && ends_now),
        .s_ready(header_ready),
        .m_data (out_user),
        .m_valid(header_valid),
        .m_ready(header_taken)
    );

    wire [15:0] left = out_user[multimqc_pkg::RESPONSE_LENGTH+:16] - done;
    // Beats that were full before the function dropped all that followed end a response; the empty beat behind them is taken out.
    logic tail;
    wire moves = m_tvalid && m_tready;
    assign m_tvalid     = header_valid && beat_valid && !tail;
    assign m_tdata      = beat;
    assign m_tlast      = left <= 16'd64;
    assign m_tuser      = out_user;
    assign m_tkeep      = multimqc_pkg::keep_of(left >= 16'd64 ? 7'd64 : left[6:0]);
    assign beat_taken   = header_valid && (tail || m_tready);
    assign header_taken = (moves && m_tlast && beat_last) || (tail && beat_valid);

    always_ff @(posedge clk) begin
        if (moves) done <= m_tlast ? 16'd0 : done + 16'd64;
        if (moves && m_tlast && !beat_last) tail <= 1'b1;
        else if (tail && beat_valid) tail <= 1'b0;
        if (rst) begin
            done <= '0;
            tail <= 1'b0;
        end
    end
endmodule
