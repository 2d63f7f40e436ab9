// A model of a DDR4-2400 channel of 64 bit with its controller, for simulation: what it stores, and when it has stored it.
//
// Each 64 bytes are one burst of eight. The model counts, in picoseconds, when the data bus is free, when each bank can open a row, the
// turn of the bus between reads and writes, and refresh. Writes are stored when their response comes and reads look when their data
// leaves, the latest that AXI allows, so that a master which reads too early, or trusts a write too early, sees it. One address order:
// all reads in their order, all writes in theirs. STALL of 16 ready signals are withheld at random.
module ddr4_model #(
    parameter int BYTES = 1 << 20,
    parameter int ADDR_W = 34,
    parameter int CLOCK_PS = 6400,
    parameter int STALL = 0
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              fail_write,
    input  logic              fail_read,
    input  logic [ADDR_W-1:0] awaddr,
    input  logic [7:0]        awlen,
    input  logic              awvalid,
    output logic              awready,
    input  logic [511:0]      wdata,
    input  logic [63:0]       wstrb,
    input  logic              wlast,
    input  logic              wvalid,
    output logic              wready,
    output logic [1:0]        bresp,
    output logic              bvalid,
    input  logic              bready,
    input  logic [ADDR_W-1:0] araddr,
    input  logic [7:0]        arlen,
    input  logic              arvalid,
    output logic              arready,
    output logic [511:0]      rdata,
    output logic [1:0]        rresp,
    output logic              rlast,
    output logic              rvalid,
    input  logic              rready,
    output logic [31:0]       row_hits,
    output logic [31:0]       row_misses,
    output logic [31:0]       turns,
    output logic [31:0]       refreshes
);
    localparam longint BURST_PS = 3333;        // 8 transfers at 2400 MT/s
    localparam longint RCD_PS = 14160;         // row to column; the same for precharge
    localparam longint CAS_PS = 14160;
    localparam longint RAS_PS = 32000;         // a row stays open
    localparam longint WRITE_READ_PS = 12000;  // turn of the bus: write latency, recovery and tWTR
    localparam longint READ_WRITE_PS = 4000;
    localparam longint REFRESH_PS = 350000;    // tRFC of 8 Gbit
    localparam longint INTERVAL_PS = 7800000;  // tREFI
    localparam longint CONTROLLER_PS = 60000;  // both ways through controller and PHY
    localparam int BANKS = 16;
    localparam int ROW_BITS = 13;              // 8 KiB of a row in all chips
    localparam int LINES = BYTES / 64;
    localparam int QUEUE = 256;

    logic [511:0] memory [LINES];
    longint now, bus_ps, refresh_ps;
    longint bank_ps [BANKS];   // its next column
    longint close_ps [BANKS];  // its row may be closed
    int bank_row [BANKS];
    bit was_write;
    int in_turn;
    logic [15:0] lfsr;

    // Waiting lines and, behind `*_planned`, lines with a time.
    int read_line [QUEUE], write_line [QUEUE];
    bit read_last [QUEUE], write_last [QUEUE];
    longint read_ps [QUEUE], write_ps [QUEUE];
    logic [511:0] write_data [QUEUE];
    logic [63:0] write_strb [QUEUE];
    bit write_bad [QUEUE];
    int read_in, read_planned, read_out, write_in, write_planned, write_out;
    int aw_line [16];
    int aw_in, aw_out, aw_beat;
    int responses;
    bit response_bad;

    function automatic longint later(input longint a, input longint b);
        later = a > b ? a : b;
    endfunction

    // When the data of a line are on the bus.
    function automatic longint plan(input int line, input bit is_write);
        int bank, row;
        longint column, data;
        bank = (line >> (ROW_BITS - 6)) % BANKS;
        row = line >> (ROW_BITS - 6 + 4);
        if (bank_row[bank] == row) begin
            column = later(now, bank_ps[bank]);
            row_hits = row_hits + 1;
        end else begin
            column = later(later(now, bank_ps[bank]), close_ps[bank]) + 2 * RCD_PS;
            bank_row[bank] = row;
            bank_ps[bank] = column;
            close_ps[bank] = column - RCD_PS + RAS_PS;
            row_misses = row_misses + 1;
        end
        if (is_write != was_write) begin
            bus_ps = later(bus_ps, now) + (is_write ? READ_WRITE_PS : WRITE_READ_PS);
            turns = turns + 1;
            was_write = is_write;
            in_turn = 0;
        end
        data = later(bus_ps, column + CAS_PS);
        bus_ps = data + BURST_PS;
        in_turn = in_turn + 1;
        plan = bus_ps + CONTROLLER_PS;
    endfunction

    // With STALL, reads are withheld for a while now and then, and writes overtake them.
    int held;
    assign rvalid = held == 0 && read_out != read_planned && read_ps[read_out % QUEUE] <= now;
    assign rdata  = memory[read_line[read_out % QUEUE] % LINES];
    assign rlast  = read_last[read_out % QUEUE];
    assign rresp  = fail_read ? 2'd2 : 2'd0;
    assign bvalid = responses != 0;
    assign bresp  = response_bad ? 2'd2 : 2'd0;

    always @(posedge clk) begin
        bit waiting_read, waiting_write, pick_write;
        now = now + CLOCK_PS;
        held = held != 0 ? held - 1 : STALL != 0 && lfsr[8:0] == 9'd1 ? 150 : 0;
        lfsr = {lfsr[14:0], lfsr[15] ^ lfsr[13] ^ lfsr[12] ^ lfsr[10]};
        if (arvalid && arready) begin
            for (int i = 0; i <= int'(arlen); i++) begin
                read_line[read_in % QUEUE] = int'(araddr >> 6) + i;
                read_last[read_in % QUEUE] = i == int'(arlen);
                read_in = read_in + 1;
            end
            if ((araddr >> 12) != ((araddr + (64 * ADDR_W'(arlen))) >> 12)) $fatal(1, "a read crosses a multiple of 4,096");
        end
        if (awvalid && awready) begin
            aw_line[aw_in % 16] = int'(awaddr >> 6);
            aw_in = aw_in + 1;
            if ((awaddr >> 12) != ((awaddr + (64 * ADDR_W'(awlen))) >> 12)) $fatal(1, "a write crosses a multiple of 4,096");
        end
        if (wvalid && wready) begin
            write_line[write_in % QUEUE] = aw_line[aw_out % 16] + aw_beat;
            write_data[write_in % QUEUE] = wdata;
            write_strb[write_in % QUEUE] = wstrb;
            write_last[write_in % QUEUE] = wlast;
            write_bad[write_in % QUEUE] = fail_write;
            write_in = write_in + 1;
            aw_beat = wlast ? 0 : aw_beat + 1;
            if (wlast) aw_out = aw_out + 1;
        end
        if (rvalid && rready) read_out = read_out + 1;
        if (bvalid && bready) responses = responses - 1;
        if (now >= refresh_ps) begin
            refresh_ps = refresh_ps + INTERVAL_PS;
            refreshes = refreshes + 1;
            bus_ps = later(bus_ps, now) + REFRESH_PS;
            for (int i = 0; i < BANKS; i++) begin
                bank_row[i] = -1;
                bank_ps[i] = bus_ps;
            end
        end
        // Up to two lines in a clock, sixteen of a kind before the others have their turn.
        for (int i = 0; i < 2; i++) begin
            waiting_read = read_planned != read_in && read_planned - read_out < QUEUE - 1;
            waiting_write = write_planned != write_in;
            pick_write = waiting_write && (!waiting_read || (was_write ? in_turn < 16 : in_turn >= 16));
            if (bus_ps < now + 2 * CLOCK_PS && (waiting_read || waiting_write)) begin
                if (pick_write) begin
                    write_ps[write_planned % QUEUE] = plan(write_line[write_planned % QUEUE], 1'b1);
                    write_planned = write_planned + 1;
                end else begin
                    read_ps[read_planned % QUEUE] = plan(read_line[read_planned % QUEUE], 1'b0);
                    read_planned = read_planned + 1;
                end
            end
        end
        // Stored with the response of its burst; one response at a time.
        while (responses == 0 && write_out != write_planned && write_ps[write_out % QUEUE] <= now) begin
            if (!write_bad[write_out % QUEUE]) begin
                for (int i = 0; i < 64; i++) begin
                    if (write_strb[write_out % QUEUE][i])
                        memory[write_line[write_out % QUEUE] % LINES][8*i+:8] = write_data[write_out % QUEUE][8*i+:8];
                end
            end
            if (write_last[write_out % QUEUE]) begin
                responses = 1;
                response_bad = write_bad[write_out % QUEUE];
            end
            write_out = write_out + 1;
        end
        if (rst) begin
            now = 0;
            held = 0;
            bus_ps = 0;
            refresh_ps = INTERVAL_PS;
            was_write = 1'b0;
            in_turn = 0;
            lfsr = 16'hace1;
            read_in = 0;
            read_planned = 0;
            read_out = 0;
            write_in = 0;
            write_planned = 0;
            write_out = 0;
            aw_in = 0;
            aw_out = 0;
            aw_beat = 0;
            responses = 0;
            row_hits = 0;
            row_misses = 0;
            turns = 0;
            refreshes = 0;
            for (int i = 0; i < BANKS; i++) begin
                bank_ps[i] = 0;
                close_ps[i] = 0;
                bank_row[i] = -1;
            end
        end
        arready <= !rst && read_in - read_out < QUEUE - 130 && int'(lfsr[3:0]) >= STALL;
        awready <= !rst && aw_in - aw_out < 14 && int'(lfsr[7:4]) >= STALL;
        wready  <= !rst && aw_in != aw_out && write_in - write_out < QUEUE - 2 && int'(lfsr[11:8]) >= STALL;
    end
endmodule
