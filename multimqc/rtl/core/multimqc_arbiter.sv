// Merges streams into one, frame by frame, each in turn. A beat in each clock, without a gap between frames: while one frame ends,
// the next is chosen.
module multimqc_arbiter #(
    parameter int PORTS  = 4,
    parameter int WIDTH  = 512,  // of a beat: data and all that travels beside it
    parameter int INDEX_W = PORTS > 1 ? $clog2(PORTS) : 1
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [PORTS*WIDTH-1:0] s_data,
    input  logic [PORTS-1:0]       s_last,
    input  logic [PORTS-1:0]       s_valid,
    output logic [PORTS-1:0]       s_ready,
    output logic [WIDTH-1:0]       m_data,
    output logic                   m_last,
    output logic [INDEX_W-1:0]     m_index,  // whose frame this is
    output logic                   m_valid,
    input  logic                   m_ready
`ifdef FORMAL
    // For the proof, which cannot look inside.
    , output logic                 formal_midway,
    output logic [INDEX_W-1:0]     formal_current
`endif
);
    if (PORTS < 1 || PORTS > 16) begin : gen_bad_ports
        $error("PORTS must be 1 to 16");
    end

    logic               midway;   // a frame has begun and not ended
    logic [INDEX_W-1:0] current;  // whose it is, or whose the last was
    logic [INDEX_W-1:0] chosen;
    logic               found;

    always_comb begin
        chosen = current;
        found  = 1'b0;
        if (midway) found = s_valid[current];
        else begin
            // From the one after the last, round.
            for (int i = PORTS; i >= 1; i--) begin
                if (s_valid[(32'(current) + i) % PORTS]) begin
                    chosen = INDEX_W'((32'(current) + i) % PORTS);
                    found  = 1'b1;
                end
            end
        end
    end

    wire room = !m_valid || m_ready;
    wire take = found && room;

    always_comb begin
        s_ready = '0;
        s_ready[chosen] = take;
    end

    always_ff @(posedge clk) begin
        if (room) begin
            m_valid <= found;
            m_data  <= s_data[chosen*WIDTH +: WIDTH];
            m_last  <= s_last[chosen];
            m_index <= chosen;
        end
        if (take) begin
            midway  <= !s_last[chosen];
            current <= chosen;
        end
        if (rst) begin
            m_valid <= 1'b0;
            midway  <= 1'b0;
            current <= '0;
        end
    end
`ifdef FORMAL
    assign formal_midway  = midway;
    assign formal_current = current;
`endif
endmodule
