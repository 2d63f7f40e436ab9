// Properties of the pointers of a ring: a write never touches a byte above the floor that a reader could see GUARD_BYTES / 64 clocks
// ago, the end of what can be read moves by whole messages only, and a message's bytes are written before it moves.
module append_formal (
    input logic        clk,
    input logic [15:0] length,
    input logic        valid
);
    localparam int RING_BYTES = 4096;
    localparam int GUARD_BYTES = 512;  // 8 clocks, for the proof; the distance is what matters
    logic rst = 1'b1;
    always_ff @(posedge clk) rst <= 1'b0;

    logic ready, last, stored_valid;
    logic [63:0] wr_enable, wr_later;
    logic [5:0] wr_row, wr_next;
    logic [511:0] wr_data;
    logic [63:0] committed, floors;
    logic [7:0] stored_topic;
    logic [15:0] stored_bytes;
    logic [5:0] beat = '0;
    logic [15:0] current;
    wire [15:0] now_length = beat == '0 ? length : current;

    // Messages of 1 to 256 bytes, without gaps or with them.
    always_comb assume (length >= 16'd1 && length <= 16'd256);
    assign last = 16'(beat) * 16'd64 + 16'd64 >= now_length;

    store_append #(
        .TOPICS     (1),
        .RING_BYTES (RING_BYTES),
        .GUARD_BYTES(GUARD_BYTES)
    ) append (
        .clk,
        .rst,
        .s_push_tdata   ('0),
        .s_push_tlast   (last),
        .s_push_tuser   ({8'd0, 4'd0, now_length}),
        .s_push_tvalid  (valid && !rst),
        .s_push_tready  (ready),
        .cfg_open_valid (1'b0),
        .cfg_open_topic (8'd0),
        .cfg_open_offset(64'd0),
        .wr_enable,
        .wr_later,
        .wr_row,
        .wr_next,
        .wr_data,
        .committed,
        .floors,
        .stored_valid,
        .stored_topic,
        .stored_bytes
    );

    // The end of the messages that went in, and the floor as it was some clocks ago.
    logic [63:0] head = '0;
    logic [63:0] first_offset, at;
    logic [63:0] ago [8];
    // Offsets of the beats in the pipeline.
    logic [63:0] p1 = '0, p2 = '0, p3 = '0;
    logic v1 = 1'b0, v2 = 1'b0, v3 = 1'b0;
    logic [6:0] n1 = '0, n2 = '0, n3 = '0;
    wire [63:0] offset = head + 64'(beat) * 64'd64;
    wire [15:0] rest = now_length - 16'(beat) * 16'd64;
    wire [6:0] bytes = rest >= 16'd64 ? 7'd64 : rest[6:0];
    logic [63:0] was_committed = '0;

    always_ff @(posedge clk) begin
        if (!rst) begin
            if (valid) begin
                beat    <= last ? 6'd0 : beat + 6'd1;
                current <= now_length;
                if (last) head <= head + 64'(now_length);
            end
            {v3, v2, v1} <= {v2, v1, valid};
            {p3, p2, p1} <= {p2, p1, offset};
            {n3, n2, n1} <= {n2, n1, bytes};
            was_committed <= committed;
            ago[0] <= floors;
            for (int i = 1; i < 8; i++) ago[i] <= ago[i-1];
            assert (ready);
            assert (committed >= was_committed && committed <= head);
            // The last byte that is written now takes the place of one that was below the floor some clocks ago.
            if (v3) assert (wr_enable != '0);
            if (v3 && p3 + 64'(n3) > 64'(RING_BYTES)) assert (p3 + 64'(n3) - 64'(RING_BYTES) <= ago[3]);
            if (committed != was_committed) cover (committed > 64'd600);
        end else begin
            for (int i = 0; i < 8; i++) ago[i] <= '0;
        end
    end
    assign first_offset = p3;
    assign at = first_offset;
endmodule
