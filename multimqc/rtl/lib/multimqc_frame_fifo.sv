// A queue of whole frames in block RAM: a frame leaves when all of it is here, and then a beat in each clock.
//
// With DROP, the queue always takes: a frame for which there is no place is dropped whole (`event_dropped`). Otherwise it waits,
// and only a frame of more than MAX_BEATS beats is dropped, since it might never fit.
module multimqc_frame_fifo #(
    parameter int USER_W    = 1,
    parameter int BEATS     = 512,
    parameter int FRAMES    = 64,
    parameter int MAX_BEATS = 32,
    parameter bit DROP      = 1'b0
) (
    input  logic              clk,
    input  logic              rst,
    input  logic [511:0]      s_tdata,
    input  logic [63:0]       s_tkeep,
    input  logic              s_tlast,
    input  logic [USER_W-1:0] s_tuser,
    input  logic              s_tvalid,
    output logic              s_tready,
    output logic [511:0]      m_tdata,
    output logic [63:0]       m_tkeep,
    output logic              m_tlast,
    output logic [USER_W-1:0] m_tuser,
    output logic              m_tvalid,
    input  logic              m_tready,
    output logic              has_room,      // for a frame of MAX_BEATS, if none is coming in
    output logic              event_dropped
);
    localparam int A = $clog2(BEATS);
    localparam int C = $clog2(MAX_BEATS + 1);

    if ((1 << A) != BEATS || BEATS < 2 * MAX_BEATS) begin : gen_bad_beats
        $error("BEATS must be a power of two of at least 2 * MAX_BEATS");
    end

    // --- In ------------------------------------------------------------------------
    logic [A:0]   written, begun, taken;
    logic [C-1:0] count;  // beats of this frame so far, at most MAX_BEATS
    logic         dropping;
    logic         frame_ready;

    wire full     = written - taken == (A + 1)'(BEATS);
    wire too_long = count == C'(MAX_BEATS);
    wire no_place = full || (s_tlast && !frame_ready);
    wire lost     = dropping || too_long || (DROP && no_place);

    assign s_tready = lost || !no_place;
    assign has_room = frame_ready && written - taken <= (A + 1)'(BEATS - MAX_BEATS);

    wire take  = s_tvalid && s_tready;
    wire store = take && !lost;

    assign event_dropped = take && s_tlast && lost;

    always_ff @(posedge clk) begin
        if (store) written <= written + 1'b1;
        if (take) begin
            count    <= s_tlast ? '0 : too_long ? count : count + 1'b1;
            dropping <= lost && !s_tlast;
            if (s_tlast) begin
                if (lost) written <= begun;
                else      begun   <= written + 1'b1;
            end
        end
        if (rst) begin
            written  <= '0;
            begun    <= '0;
            count    <= '0;
            dropping <= 1'b0;
        end
    end

    // --- Whole frames: their users, the keep of their last beats, and how many beats they have ---
    logic              h_valid, pop;
    logic [USER_W-1:0] h_user;
    logic [63:0]       h_keep;
    logic [C-1:0]      h_count;

    multimqc_fifo #(.WIDTH(USER_W + 64 + C), .DEPTH(FRAMES)) frames (
        .clk, .rst, .s_data({s_tuser, s_tkeep, count}), .s_valid(store && s_tlast), .s_ready(frame_ready),
        .m_data({h_user, h_keep, h_count}), .m_valid(h_valid), .m_ready(pop)
    );

    // --- Out -------------------------------------------------------------------------
    logic [C-1:0] index;

    // The memory's output is the output's register: the next beat is read when it is free or taken.
    wire at_last = index == h_count;
    wire issue   = h_valid && (!m_tvalid || m_tready);

    assign pop = issue && at_last;

    multimqc_ram #(.WIDTH(512), .DEPTH(BEATS)) words (
        .clk, .write(store), .write_address(written[A-1:0]), .write_data(s_tdata),
        .read(issue), .read_address(taken[A-1:0]), .read_data(m_tdata)
    );

    always_ff @(posedge clk) begin
        if (issue) begin
            taken   <= taken + 1'b1;
            index   <= at_last ? '0 : index + 1'b1;
            m_tlast <= at_last;
            m_tkeep <= at_last ? h_keep : '1;
            m_tuser <= h_user;
        end
        m_tvalid <= issue || (m_tvalid && !m_tready);
        if (rst) begin
            taken    <= '0;
            index    <= '0;
            m_tvalid <= 1'b0;
        end
    end
endmodule
