// Takes the headers off pushes: the message, from byte 0 of a beat on.
//
// A message begins at byte 42 (IPv4) or 62 (IPv6) of its frame, or 32 bytes later in the header form: so each beat of the message
// is the upper part of one beat of the frame and the lower part of the next. A beat waits for its successor, and leaves when it
// comes, or at once if the message ends in it; so a frame of n beats leaves in n clocks, and no gap is between frames.
module multimqc_push (
    input  logic                                  clk,
    input  logic                                  rst,
    input  logic [511:0]                          s_tdata,
    input  logic                                  s_tlast,
    input  logic [multimqc_pkg::FRAME_USER_W-1:0] s_tuser,
    input  logic                                  s_tvalid,
    output logic                                  s_tready,
    output logic [511:0]                          m_tdata,
    output logic [63:0]                           m_tkeep,
    output logic                                  m_tlast,
    output logic [multimqc_pkg::PUSH_USER_W-1:0]  m_tuser,
    output logic                                  m_tvalid,
    input  logic                                  m_tready
);
    localparam int LENGTH_W = multimqc_pkg::LENGTH_W;

    // The beat that waits.
    logic [511:0]        data;
    logic                valid;
    logic                midway;   // the message has begun in this beat or before
    logic [LENGTH_W-1:0] left;     // bytes of the message that are not out yet
    logic                headed, v6;
    logic [multimqc_pkg::PUSH_USER_W-1:0] user;

    // Where the message begins in its first beat: 42, 62, 74 - 64 or 94 - 64.
    logic [6:0]   shift;
    logic [511:0] joined;

    always_comb begin
        case ({headed, v6})
            2'b00: begin shift = 7'd42; joined = {s_tdata[42*8-1:0], data[511:42*8]}; end
            2'b01: begin shift = 7'd62; joined = {s_tdata[62*8-1:0], data[511:62*8]}; end
            2'b10: begin shift = 7'd10; joined = {s_tdata[10*8-1:0], data[511:10*8]}; end
            2'b11: begin shift = 7'd30; joined = {s_tdata[30*8-1:0], data[511:30*8]}; end
        endcase
    end

    wire has_bytes = valid && midway && left != '0;
    wire needs_next = left > LENGTH_W'(64) - LENGTH_W'(shift);
    wire complete = has_bytes && (!needs_next || s_tvalid);
    wire room = !m_tvalid || m_tready;
    // The waiting beat goes: it leaves, or has nothing of the message.
    wire go = has_bytes ? complete && room : valid;

    assign s_tready = !valid || go;

    logic first;  // the next beat that comes is the first of its frame

    wire                s_headed = s_tuser[multimqc_pkg::FRAME_HEADED];
    wire [LENGTH_W-1:0] s_n      = s_tuser[multimqc_pkg::FRAME_N +: LENGTH_W];
    wire [LENGTH_W-1:0] left_next = !has_bytes ? left : left > LENGTH_W'(64) ? left - LENGTH_W'(64) : '0;

    always_ff @(posedge clk) begin
        if (room) begin
            m_tvalid <= complete;
            m_tdata  <= joined;
            m_tkeep  <= multimqc_pkg::keep_of(left >= LENGTH_W'(64) ? 7'd64 : left[6:0]);
            m_tlast  <= left <= LENGTH_W'(64);
            m_tuser  <= user;
        end
        if (s_tready) begin
            valid <= s_tvalid;
            data  <= s_tdata;
            if (s_tvalid) first <= s_tlast;
            if (s_tvalid && first) begin
                headed <= s_headed;
                v6     <= s_tuser[multimqc_pkg::FRAME_V6];
                midway <= !s_headed;
                left   <= s_n;
                user   <= {s_tuser[multimqc_pkg::FRAME_TOPIC +: multimqc_pkg::TOPIC_W],
                           s_tuser[multimqc_pkg::FRAME_PORT +: multimqc_pkg::PORT_W], s_n};
            end else begin
                midway <= 1'b1;
                left   <= left_next;
            end
        end
        if (rst) begin
            valid    <= 1'b0;
            m_tvalid <= 1'b0;
            first    <= 1'b1;
        end
    end

endmodule
