// The place of the output functions, between the store and the front end: a topic has none (0), drops the records whose number lies in
// a range (1), or sends one field of each record (2). Responses stay in their order: one waits while those before it are in another
// function. Without FUNCTIONS, nothing is here; a topic without one loses no clock.
//
//   read requests ─▶ the function of each ─▶┐
//   responses ──────────────────────────────┴─▶ none, range or field ─▶ responses
//
// A response keeps the function that its topic had when it was asked for.
module multimqc_output_slot #(
    parameter int TOPICS = 4,
    parameter int FUNCTIONS = 1,
    parameter int PULLS = 128,  // most requests that are without a response, a power of two
    parameter int RECORD_BYTES = 32,
    parameter int NUMBER_AT = 0,
    parameter int NUMBER_BYTES = 4,
    parameter int NUMBER_IS_SIGNED = 0,
    parameter longint DROP_LOW = 100,
    parameter longint DROP_HIGH = 200,
    parameter int FIELD_AT = 0,
    parameter int FIELD_BYTES = 4
) (
    input  logic                                     clk,
    input  logic                                     rst,
    input  logic [TOPICS*2-1:0]                      cfg_function,
    // A request that the store takes.
    input  logic [multimqc_pkg::READ_REQUEST_W-1:0]  read_data,
    input  logic                                     read_taken,
    output logic                                     read_room,   // whether it may take one
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
    if (FUNCTIONS == 0) begin : g_none
        assign read_room = 1'b1;
        assign m_tdata   = s_tdata;
        assign m_tkeep   = s_tkeep;
        assign m_tlast   = s_tlast;
        assign m_tuser   = s_tuser;
        assign m_tvalid  = s_tvalid;
        assign s_tready  = m_tready;
        wire unused = &{1'b0, clk, rst, cfg_function, read_data, read_taken};
    end else begin : g_functions
        localparam int TW = TOPICS > 1 ? $clog2(TOPICS) : 1;
        localparam int W = $clog2(PULLS) + 1;
        localparam int RESPONSE_W = multimqc_pkg::READ_RESPONSE_W;
        wire [TW-1:0] topic = read_data[multimqc_pkg::READ_TOPIC+:TW];
        logic [1:0] chosen;
        logic chosen_valid;

        multimqc_fifo #(
            .WIDTH(2),
            .DEPTH(PULLS)
        ) functions_of (
            .clk,
            .rst,
            .s_data (cfg_function[2*topic+:2]),
            .s_valid(read_taken),
            .s_ready(read_room),
            .m_data (chosen),
            .m_valid(chosen_valid),
            .m_ready(s_tvalid && s_tready && s_tlast)
        );

        // Responses that are in each function; all of them are of one at a time.
        logic [2*W-1:0] under_way;
        logic [1:0] f_valid, f_last, f_ready, in_ready, other_is_empty, begins, leaves;
        logic [2*512-1:0] f_data;
        logic [2*64-1:0] f_keep;
        logic [2*RESPONSE_W-1:0] f_user;
        logic first;

        always_ff @(posedge clk) begin
            if (s_tvalid && s_tready) first <= s_tlast;
            for (int i = 0; i < 2; i++) under_way[W*i+:W] <= under_way[W*i+:W] + W'(begins[i]) - W'(leaves[i]);
            if (rst) begin
                first     <= 1'b1;
                under_way <= '0;
            end
        end

        for (genvar i = 0; i < 2; i++) begin : g_function
            wire mine = chosen_valid && chosen == 2'(i + 1);
            assign other_is_empty[i] = under_way[W*(1-i)+:W] == '0;
            assign begins[i] = mine && s_tvalid && s_tready && first;
            assign leaves[i] = f_valid[i] && f_ready[i] && f_last[i];
            assign f_ready[i] = m_tready;

            output_records #(
                .FUNCTION    (i + 1),
                .RECORD_BYTES(RECORD_BYTES),
                .AT          (i == 0 ? NUMBER_AT : FIELD_AT),
                .FIELD_BYTES (i == 0 ? NUMBER_BYTES : FIELD_BYTES),
                .IS_SIGNED   (NUMBER_IS_SIGNED),
                .LOW         (DROP_LOW),
                .HIGH        (DROP_HIGH)
            ) records (
                .clk,
                .rst,
                .s_tdata,
                .s_tkeep,
                .s_tlast,
                .s_tuser,
                .s_tvalid(s_tvalid && mine && other_is_empty[i]),
                .s_tready(in_ready[i]),
                .m_tdata (f_data[512*i+:512]),
                .m_tkeep (f_keep[64*i+:64]),
                .m_tlast (f_last[i]),
                .m_tuser (f_user[RESPONSE_W*i+:RESPONSE_W]),
                .m_tvalid(f_valid[i]),
                .m_tready(f_ready[i])
            );
        end

        wire plain = chosen_valid && chosen != 2'd1 && chosen != 2'd2;
        wire plain_goes = plain && under_way == '0;

        always_comb begin
            s_tready = plain ? plain_goes && m_tready
                : chosen_valid && (chosen == 2'd1 ? in_ready[0] && other_is_empty[0] : in_ready[1] && other_is_empty[1]);
            m_tdata  = s_tdata;
            m_tkeep  = s_tkeep;
            m_tlast  = s_tlast;
            m_tuser  = s_tuser;
            m_tvalid = s_tvalid && plain_goes;
            for (int i = 0; i < 2; i++) begin
                if (under_way[W*i+:W] != '0) begin
                    m_tdata  = f_data[512*i+:512];
                    m_tkeep  = f_keep[64*i+:64];
                    m_tlast  = f_last[i];
                    m_tuser  = f_user[RESPONSE_W*i+:RESPONSE_W];
                    m_tvalid = f_valid[i];
                end
            end
        end
    end
endmodule
